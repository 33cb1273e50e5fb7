"""Checks of NCCL's and Gloo's settings against the devices that are here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.compatibility import LeftOverVariable, left_over_variables
from envdoctor.facts import NcclFilesFact, NetworkFact, VariablesFact
from envdoctor.value import value
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PREFIX_LISTS = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME")
"""Lists of prefixes, excluded after `^`, exact after `=`."""

_EXACT_LISTS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""Lists of exact names, all of which have to be here."""

_HCA = "NCCL_IB_HCA"


@value
class Setting:
    """A setting as it takes effect: from a variable, or from a file if there is no variable."""

    name: str
    value: str
    file: str = ""


@check()
def network_interface_not_found(
    network: NetworkFact, variables: VariablesFact, files: NcclFilesFact
) -> Verdict:
    """A setting names a network interface that is not here.

    ## What it checks
    NCCL_SOCKET_IFNAME and its like in the environment, `~/.nccl.conf` and `/etc/nccl.conf`
    (prefixes; `^` excludes, `=` is exact), and GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME (exact
    names), against the interfaces of this machine.

    ## Why it matters
    Left over from another machine, such a setting stops every distributed run at its start, with
    an odd error about sockets or address families.

    ## Remedy
    Unset the variable, or name an interface of this machine.

    ## Source
    NVIDIA/nccl#1837; NCCL user guide, environment variables; torch ProcessGroupGloo.
    """
    found: list[Problem] = []
    settings = effective_settings(variables, files, (*_PREFIX_LISTS, *_EXACT_LISTS))
    for setting in settings:
        if setting.name in _PREFIX_LISTS:
            is_wrong = not selected(setting.value, network.interfaces)
        else:
            names = [name.strip() for name in setting.value.split(",") if name.strip()]
            is_wrong = any(name not in network.interfaces for name in names)
        if is_wrong:
            found.append(_not_found(setting, "network interface", network.interfaces))
    return problems(found, Ok(f"{len(settings)} setting(s) name interfaces of this machine"))


@check()
def rdma_device_not_found(
    network: NetworkFact, variables: VariablesFact, files: NcclFilesFact
) -> Verdict:
    """NCCL_IB_HCA names an RDMA device that is not here.

    ## What it checks
    NCCL_IB_HCA (prefixes with optional ports; `^` excludes, `=` is exact) in the environment and
    in NCCL's configuration files, against the RDMA devices of this machine.

    ## Why it matters
    NCCL finds no device and goes on through TCP sockets, many times slower, or stops if it is
    told to use nothing else.

    ## Remedy
    Unset the variable, or name a device of this machine.

    ## Source
    NCCL user guide, environment variables.
    """
    setting = next(iter(effective_settings(variables, files, (_HCA,))), None)
    if setting is None:
        return Ok(f"{_HCA} is not set")
    if network.hcas is None:
        return Skipped("the RDMA devices are unknown")
    if selected(_without_ports(setting.value), network.hcas):
        return Ok(f"{_HCA}={setting.value} names devices of this machine")
    severity = Severity.ERROR if network.hcas else Severity.WARNING
    return _not_found(setting, "RDMA device", network.hcas, severity)


def effective_settings(
    variables: VariablesFact, files: NcclFilesFact, names: Iterable[str]
) -> list[Setting]:
    """Return the settings that have a value, as NCCL reads them: variables win over files."""
    found = []
    for name in names:
        value = variables.get(name)
        if value is not None:
            found.append(Setting(name, value))
            continue
        in_files = (
            Setting(name, value, file.path)
            for file in files.files
            for key, value in file.settings
            if key == name
        )
        found += [setting for setting in [next(in_files, None)] if setting]
    return [setting for setting in found if setting.value.strip()]


def selected(value: str, names: Sequence[str]) -> list[str]:
    """Return which devices a list of NCCL selects.

    Source: NCCL user guide, NCCL_SOCKET_IFNAME: `^` and then `=` at the beginning hold for all
    that follows.
    """
    value = value.strip()
    excludes, value = value.startswith("^"), value.removeprefix("^")
    is_exact, value = value.startswith("="), value.removeprefix("=")
    items = [item.strip() for item in value.split(",") if item.strip()]
    return [name for name in names if excludes != any(_fits(name, one, is_exact) for one in items)]


def _fits(name: str, item: str, is_exact: bool) -> bool:  # noqa: FBT001  one of three plain words
    return name == item if is_exact else name.startswith(item)


def _without_ports(value: str) -> str:
    return ",".join(item.partition(":")[0] for item in value.split(","))


def _not_found(
    setting: Setting, what: str, names: Sequence[str], severity: Severity = Severity.ERROR
) -> Problem:
    where = f" in {setting.file}" if setting.file else ""
    here = ", ".join(names) or "none"
    return Problem(
        culprit=f"{setting.name}{where}",
        severity=severity,
        owner="image" if setting.file.startswith("/etc/") else "user",
        message=f"{setting.name}={setting.value}{where} names no {what} of this machine ({here})",
        evidence=(Evidence(subject=setting.name, expected=f"of {here}", found=setting.value),),
        remedy=Remedy(
            kind="config-change",
            text=f"Remove the line from {setting.file}, or name a {what} of this machine.",
        )
        if setting.file
        else Remedy(
            kind="unset-env",
            text=f"Unset the variable, or name a {what} of this machine.",
            commands=(f"unset {setting.name}",),
        ),
    )


@check()
def debugging_variable_left(variables: VariablesFact, files: NcclFilesFact) -> Verdict:
    """A variable that was set to look for a fault is still set.

    ## What it checks
    Variables of NCCL, CUDA, torch and Triton that slow a run or change what it does, in the
    environment and (NCCL's) in its configuration files.

    ## Why it matters
    They help while a fault is looked for; afterwards a run is several times slower, or compiles
    nothing, and nothing says so.

    ## Remedy
    Unset the variable.

    ## Source
    NCCL user guide: such settings are not to be kept; the table left_over_variables.
    """
    known = {item.name: item for item in left_over_variables()}
    found = [
        _left_over(setting, known[setting.name])
        for setting in effective_settings(variables, files, known)
        if not known[setting.name].values or setting.value.lower() in known[setting.name].values
    ]
    return problems(found, Ok(f"none of {len(known)} such variables is set"))


def _left_over(setting: Setting, known: LeftOverVariable) -> Problem:
    where = f" in {setting.file}" if setting.file else ""
    return Problem(
        culprit=f"{setting.name}{where}",
        severity=Severity(known.severity),
        message=f"{setting.name}={setting.value}{where}: {known.effect}",
        evidence=(Evidence(subject=setting.name, expected="not set", found=setting.value),),
        remedy=Remedy(
            kind="config-change", text=f"Remove the line from {setting.file} if nobody needs it."
        )
        if setting.file
        else Remedy(
            kind="unset-env",
            text="Unset the variable if nobody needs it.",
            commands=(f"unset {setting.name}",),
        ),
    )
