"""Checks that compiled packages are for this Python and this machine."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath

from envdoctor.check import check
from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    Extension,
    ExtensionsFact,
    HostFact,
    ImportPathFact,
    InterpreterFact,
    PolicyFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Skipped, Verdict

_SHOWN = 5
_MANY = 4
"""Packages for another Python from which on the environment as a whole is at fault."""

_PYTHON = re.compile(r"cp(\d)(\d+)$")
_ABI_OF_ANY = re.compile(r"-(?:abi3|none)-")
_ONE_PYTHON = re.compile(r"cp\d+-cp\d+")
_MACHINE = re.compile(
    r"(?:manylinux|musllinux|linux)[a-z0-9_]*?_(x86_64|aarch64|i686|ppc64le|s390x|armv7l|riscv64)$"
)


@check()
def package_for_another_python(
    installed: DistributionsFact,
    extensions: ExtensionsFact,
    paths: ImportPathFact,
    interpreter: InterpreterFact,
    host: HostFact,
    policy: PolicyFact,
) -> Verdict:
    """A compiled package was built for another Python or another machine.

    ## What it checks
    The tags of each installed wheel (WHEEL) and the ABI tag in the file names of compiled modules
    (`_C.cpython-312-x86_64-linux-gnu.so`), against this environment's Python version and machine.
    `abi3` fits its own and all later versions. A module that a wheel for any Python ships under
    such a name is meant to be loaded by its path, and is none.

    ## Why it matters
    Python does not even look at a module of another tag: "No module named torch._C", though the
    file is there. It comes of copying packages between environments.

    ## Remedy
    Reinstall the package with this environment's Python; if it is most packages, make the
    environment anew.

    ## Source
    PyPA platform compatibility tags (PEP 425); PEP 3149.
    """
    minor = _minor(interpreter.version)
    if minor is None:
        return Skipped(f"the version of this Python is not known ({interpreter.version!r})")
    # What comes from elsewhere on the import path is another check's matter.
    own = {folder.path for folder in paths.folders if folder.origin == "site-packages"}
    foreign = [
        (dist, why)
        for dist in installed.distributions
        if str(PurePath(dist.path).parent) in own
        and (why := _misfit(dist.tags, minor, host.machine))
    ]
    if _is_whole_environment(installed, [dist for dist, _ in foreign]):
        return _whole_environment(foreign, interpreter, host.machine)
    if foreign:
        return tuple(_foreign(dist, why, interpreter, policy) for dist, why in foreign)
    any_python = {dist.name for dist in installed.distributions if _is_for_any_python(dist)}
    odd = [
        item
        for item in _foreign_extensions(extensions.extensions, minor)
        if item.owner not in any_python
        and any(item.path.startswith(f"{folder}/") for folder in own)
    ]
    if odd:
        return tuple(_extension(item, installed, interpreter, policy) for item in odd[:_SHOWN])
    return Ok(f"every compiled package is for Python {interpreter.version} on {host.machine}")


def _minor(version: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _misfit(tags: tuple[str, ...], minor: tuple[int, int], machine: str) -> str:
    """Return the tag that shows why a wheel does not fit; empty if one of its tags does."""
    if not tags or any(_fits(tag, minor, machine) for tag in tags):
        return ""
    return tags[0]


def _fits(tag: str, minor: tuple[int, int], machine: str) -> bool:
    """Tell whether a tag fits; what is written in a form not known here counts as fitting."""
    parts = tag.split("-")
    if len(parts) != 3:  # noqa: PLR2004  python, ABI, platform
        return True
    python, abi, platform = parts
    found = _MACHINE.search(platform)
    if found and found[1] != machine:
        return False
    match = _PYTHON.match(python)
    if match is None:
        return True
    built = int(match[1]), int(match[2])
    return built <= minor if abi in {"abi3", "none"} else built == minor


def is_for_another_machine(tags: tuple[str, ...], machine: str) -> bool:
    """Tell whether each of a wheel's tags names a machine, and none of them this one."""
    found = [_MACHINE.search(tag) for tag in tags]
    return bool(machine and found) and all(match and match[1] != machine for match in found)


def _is_whole_environment(installed: DistributionsFact, foreign: list[Distribution]) -> bool:
    """Tell whether not single packages are at fault, but where they were all copied from."""
    if len(foreign) >= _MANY:
        return True
    bound = [dist for dist in installed.distributions if _is_for_one_python(dist)]
    return len(foreign) > 1 and all(dist in foreign for dist in bound)


def _is_for_one_python(dist: Distribution) -> bool:
    return bool(dist.tags) and all(_ONE_PYTHON.match(tag) for tag in dist.tags)


def _is_for_any_python(dist: Distribution) -> bool:
    """Tell whether no import looks for a wheel's modules by tag: they are loaded by their path.

    torchao ships `_C_mxfp8.cpython-310-x86_64-linux-gnu.so` in a `cp310-abi3` wheel.
    """
    return bool(dist.tags) and all(_ABI_OF_ANY.search(tag) for tag in dist.tags)


def _foreign_extensions(
    extensions: tuple[Extension, ...], minor: tuple[int, int]
) -> list[Extension]:
    """Return compiled modules for another Python of which there is no copy for this one.

    Some packages bring a copy for each version of Python.
    """
    own = f"cpython-{minor[0]}{minor[1]}"
    stems: dict[str, list[Extension]] = {}
    for item in extensions:
        path = PurePath(item.path)
        stems.setdefault(f"{path.parent}/{path.name.partition('.')[0]}", []).append(item)
    return [
        items[0]
        for items in stems.values()
        if all(item.tag.startswith("cpython-") and item.tag.rstrip("td") != own for item in items)
    ]


def _whole_environment(
    foreign: list[tuple[Distribution, str]], interpreter: InterpreterFact, machine: str
) -> Problem:
    if all(is_for_another_machine(dist.tags, machine) for dist, _ in foreign):
        here, other, part = f"this machine ({machine})", "machine", 2
    else:
        here, other, part = f"this Python {interpreter.version}", "Python", 0
    tag, count = Counter(why.rpartition("-")[part] for _, why in foreign).most_common(1)[0]
    return Problem(
        culprit=interpreter.prefix,
        message=f"{len(foreign)} packages are not for {here}: "
        f"{count} are built for {tag}, such as {foreign[0][0].name}",
        evidence=tuple(
            Evidence(subject=dist.name, expected=here.removeprefix("this "), found=why)
            for dist, why in foreign[:_SHOWN]
        ),
        remedy=Remedy(
            kind="recreate-venv",
            text=f"Make the environment anew: its packages were copied from another {other}'s.",
            commands=("envdoctor build --profile cu128",),
        ),
    )


def _foreign(
    dist: Distribution, why: str, interpreter: InterpreterFact, policy: PolicyFact
) -> Problem:
    return Problem(
        culprit=dist.name,
        message=f"{dist.name} {dist.version} has the ABI tag {why}, which does not fit "
        f"Python {interpreter.version} here",
        evidence=(
            Evidence(
                subject=f"{dist.path}/WHEEL",
                expected=f"Python {interpreter.version}",
                found=why,
            ),
        ),
        remedy=_reinstall(dist.name, dist.version, policy),
    )


def _extension(
    item: Extension,
    installed: DistributionsFact,
    interpreter: InterpreterFact,
    policy: PolicyFact,
) -> Problem:
    owner = installed.find(item.owner) if item.owner else _owner(item.path, installed)
    return Problem(
        culprit=owner.name if owner else item.path,
        message=f"{item.path} has the ABI tag {item.tag}: Python {interpreter.version} does not "
        "look at it, and there is none for it",
        evidence=(
            Evidence(subject=item.path, expected=f"Python {interpreter.version}", found=item.tag),
        ),
        remedy=_reinstall(owner.name, owner.version, policy)
        if owner
        else Remedy(
            kind="install-matching-wheel",
            text="Reinstall the package that it belongs to, with this environment's Python.",
        ),
    )


def _owner(path: str, installed: DistributionsFact) -> Distribution | None:
    """Return the distribution whose name is the module's, or that of the folder around it."""
    names = {PurePath(path).parent.name.lower(), PurePath(path).name.partition(".")[0].lower()}
    return next(
        (dist for dist in installed.distributions if dist.name.replace("-", "_") in names),
        None,
    )


def _reinstall(name: str, version: str, policy: PolicyFact) -> Remedy:
    return Remedy(
        kind="install-matching-wheel",
        text=f"Reinstall {name} with this environment's Python.",
        commands=(f"{policy.pip_install} {name}=={version}",),
    )
