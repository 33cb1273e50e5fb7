"""What an environment and its machine were at one time, in a form that can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from envdoctor.facts import (
    CompilerFact,
    CondaFact,
    ContainerFact,
    DistributionsFact,
    HostFact,
    InterpreterFact,
    LimitsFact,
    LoaderConfigFact,
    LoaderFact,
    NcclFilesFact,
    NetworkFact,
    NvidiaFact,
    OpenMpFact,
    PtxasFact,
    RecordsFact,
    ServicesFact,
    TorchBuildFact,
    Unavailable,
    UserFact,
    VariablesFact,
)
from envdoctor.facts.snapshot import kind_name
from envdoctor.requirements import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from envdoctor.facts import Fact, FactSet
    from envdoctor.receipt import Receipt

Section = Literal[
    "file", "torch", "library", "package", "driver", "gpu", "variable", "python", "host", "other"
]

_OTHERS: tuple[type[Fact], ...] = (
    CompilerFact,
    CondaFact,
    ContainerFact,
    LimitsFact,
    LoaderConfigFact,
    NcclFilesFact,
    NetworkFact,
    OpenMpFact,
    PtxasFact,
    ServicesFact,
    UserFact,
)
"""Kinds that are compared field by field. Those that are neither here nor have a section of their
own follow from others, or tell of events."""

ENVIRONMENT = "ENV"
"""Stands for the environment's own folder in paths."""

_MIB = 1024**2
_ENOUGH_BYTES = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state.

    Args:
        name: What it was read from.
        sections: Values by key, by section; a section that the source cannot tell is not there.
        pure: Packages whose wheels hold Python alone.
        of_torch: Packages that torch requires, directly or not; None if the source does not tell.
    """

    name: str
    sections: Mapping[Section, Mapping[str, str]]
    pure: frozenset[str] = frozenset()
    of_torch: frozenset[str] | None = None


def state_of_facts(facts: FactSet, *, name: str) -> State:
    """Return the state that a snapshot tells."""
    sections: dict[Section, dict[str, str]] = {}
    interpreter = facts.get(InterpreterFact)
    prefix = interpreter.prefix if isinstance(interpreter, InterpreterFact) else ""
    for section, values in _told_by(facts):
        sections.setdefault(section, {}).update(_without_prefix(values, prefix))
    installed = facts.get(DistributionsFact)
    if not isinstance(installed, DistributionsFact):
        return State(name=name, sections=sections)
    return State(name=name, sections=sections, pure=_pure(installed), of_torch=_of_torch(installed))


def state_of_receipt(receipt: Receipt, *, name: str) -> State:
    """Return the state that a receipt tells: what was installed, and on which machine."""
    said: dict[str, Any] = receipt.report.get("environment") or {}
    return State(
        name=name,
        sections={
            "torch": _given(
                version=said.get("torch"), cuda=said.get("cuda"), arch=said.get("arch")
            ),
            "package": {wheel.name: wheel.version for wheel in receipt.packages},
            "driver": _given(driver=said.get("driver")),
            "python": {"version": receipt.python.version},
            "host": _host(receipt.host),
        },
        pure=frozenset(
            wheel.name for wheel in receipt.packages if wheel.file.endswith("-none-any.whl")
        ),
    )


def _told_by(facts: FactSet) -> Iterator[tuple[Section, Mapping[str, str]]]:
    """Yield what the facts say, by section."""
    for kind, section, values_of in _SECTIONS:
        fact = facts.get(kind)
        if not isinstance(fact, Unavailable):
            yield section, values_of(fact)
    for kind in _OTHERS:
        fact = facts.get(kind)
        if not isinstance(fact, Unavailable):
            yield "other", _flat(fact)


def _gpus(nvidia: NvidiaFact) -> dict[str, str]:
    return {
        str(gpu.index): f"{gpu.name} ({gpu.capability}, {gpu.memory_bytes // _MIB} MiB)"
        for gpu in nvidia.gpus
    }


def _host(host: HostFact | Mapping[str, Any]) -> dict[str, str]:
    """Return what is stable of a host; of free space only whether there is enough."""
    values = host if isinstance(host, Mapping) else asdict(host)
    told = _given(**{key: values.get(key) for key in _HOST_KEYS})
    free = values.get("disk_free_bytes")
    return told | ({} if free is None else {"disk free": _room(free)})


def _room(free_bytes: int) -> str:
    return "1 GiB or more" if free_bytes >= _ENOUGH_BYTES else f"{free_bytes // _MIB} MiB"


_HOST_KEYS = ("machine", "system", "kernel", "glibc", "shm_bytes")


def _damage(records: RecordsFact) -> dict[str, str]:
    return {
        item.path: f"{item.found} (expected {item.expected})"
        for files in records.distributions
        for item in files.differing
    }


def _given(**values: object) -> dict[str, str]:
    return {key: _text(value) for key, value in values.items() if value}


def _flat(fact: Fact) -> dict[str, str]:
    """Return the fields of a fact; of a list each item is a key, as its place says nothing."""
    found: dict[str, str] = {}
    kind = kind_name(type(fact))
    for item in fields(fact):
        value = getattr(fact, item.name)
        if isinstance(value, tuple):
            found |= {f"{kind}.{item.name}: {_text(entry)}": "there" for entry in value}
        elif value not in (None, ""):
            found[f"{kind}.{item.name}"] = _text(value)
    return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    return str(value)


def _without_prefix(values: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return values in which the environment's own folder has the same name everywhere."""
    if not prefix:
        return dict(values)
    # Whole path segments only: /b is no part of /bin or of /a/b.
    own = re.compile(rf"(?<![\w./-]){re.escape(prefix)}(?![\w.-])")
    return {own.sub(ENVIRONMENT, key): own.sub(ENVIRONMENT, value) for key, value in values.items()}


def _pure(installed: DistributionsFact) -> frozenset[str]:
    return frozenset(
        dist.name
        for dist in installed.distributions
        if dist.tags and all(tag.endswith("-none-any") for tag in dist.tags)
    )


def _of_torch(installed: DistributionsFact) -> frozenset[str]:
    """Return torch and what it requires, whatever the markers say: too many rather than too few."""
    found: set[str] = set()
    queue = ["torch"]
    while queue:
        name = queue.pop()
        dist = installed.find(name)
        if name not in found and dist is not None:
            found.add(name)
            queue += [name_of(line) for line in dist.requires]
    return frozenset(found)


_SECTIONS: tuple[tuple[type[Any], Section, Callable[[Any], Mapping[str, str]]], ...] = (
    (RecordsFact, "file", _damage),
    (
        TorchBuildFact,
        "torch",
        lambda fact: _given(version=fact.version, cuda=fact.cuda, hip=fact.hip, arch=fact.arch),
    ),
    (
        LoaderFact,
        "library",
        lambda fact: {item.soname or item.path: item.path for item in fact.objects},
    ),
    (
        DistributionsFact,
        "package",
        lambda fact: {dist.name: fact.version_of(dist.name) for dist in fact.distributions},
    ),
    (
        NvidiaFact,
        "driver",
        lambda fact: _given(driver=fact.driver, libraries=fact.library, error=fact.error),
    ),
    (NvidiaFact, "gpu", _gpus),
    (VariablesFact, "variable", lambda fact: dict(fact.values)),
    (InterpreterFact, "python", lambda fact: {"version": fact.version}),
    (HostFact, "host", _host),
)
