"""Look at the environment whose processes use the caches."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.caches.fingerprint import Fingerprint, relevant
from envdoctor.caches.judge import Surroundings
from envdoctor.caches.key_memory import Keys, Memory
from envdoctor.caches.stamp_places import folder
from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    FactSet,
    HostFact,
    InterpreterFact,
    NvidiaFact,
    PolicyFact,
    TorchBuildFact,
    Unavailable,
    UserFact,
    VariablesFact,
)
from envdoctor.probes.build_keys import entry_prefix
from envdoctor.probes.collecting import collect_with
from envdoctor.probes.distributions import read_distributions
from envdoctor.probes.files import UnreadableError, read_text
from envdoctor.probes.host import read_host
from envdoctor.probes.interpreter import read_interpreter
from envdoctor.probes.nvidia import read_nvidia
from envdoctor.probes.torch_build import parse_version_file, read_torch_build
from envdoctor.probes.user import read_user
from envdoctor.probes.variables import read_variables

if TYPE_CHECKING:
    from envdoctor.probes.collecting import Probe
    from envdoctor.probes.subject import Subject

PROBES: tuple[Probe, ...] = (
    (PolicyFact, lambda subject, _: subject.policy),
    (HostFact, read_host),
    (VariablesFact, read_variables),
    (InterpreterFact, read_interpreter),
    (DistributionsFact, read_distributions),
    (TorchBuildFact, read_torch_build),
    (NvidiaFact, read_nvidia),
    (UserFact, read_user),
)
"""The facts that decide where caches lie and what their entries must be for, in the registry's
order: importing every probe takes a tenth of the time that a verification takes."""

_PYTHON_PARTS = 2


def read_facts(subject: Subject, given: FactSet | None = None) -> FactSet:
    """Return the facts that the caches depend on; what is given stands in for this machine's."""
    return collect_with(PROBES, subject, given)


def look(subject: Subject, facts: FactSet, *, home: Path, deep: bool) -> Surroundings:
    """Return what entries are held against.

    Args:
        subject: The environment.
        facts: As `read_facts` gives them.
        home: envdoctor's own folder, where keys are remembered.
        deep: True to compute the keys of torch and Triton anew.
    """
    build, host = facts.need(TorchBuildFact), facts.need(HostFact)
    python = ".".join(facts.need(InterpreterFact).version.split(".")[:_PYTHON_PARTS])
    keys = _keys(facts, python, home=home, fresh=deep)
    nvidia = facts.get(NvidiaFact)
    known = NvidiaFact(num_devices=0) if isinstance(nvidia, Unavailable) else nvidia
    triton = keys.triton
    fingerprint = Fingerprint(
        torch=build.version or "",
        torch_key=keys.torch.key if keys.torch else "",
        triton=facts.need(DistributionsFact).version_of("triton"),
        triton_key=hashlib.sha256(triton.key.encode()).hexdigest() if triton else "",
        cuda=build.cuda or "",
        driver=known.driver or "",
        gpus=tuple(sorted({f"{gpu.name} sm_{_arch(gpu.capability)}" for gpu in known.gpus})),
        python=python,
        machine=host.machine,
        variables=relevant(subject.variables),
    )
    user = facts.get(UserFact)
    mark = entry_prefix(bytes.fromhex(keys.torch.key), python=python) if keys.torch else ""
    return Surroundings(
        fingerprint=fingerprint,
        mark=mark,
        marks=keys.known,
        systems=_systems(keys, known, build.cuda, has_triton=bool(fingerprint.triton)),
        devices=frozenset(gpu.name for gpu in known.gpus),
        archs=frozenset(_arch(gpu.capability) for gpu in known.gpus if gpu.capability),
        uid=0 if isinstance(user, Unavailable) else user.uid,
        now_ns=time.time_ns(),
    )


def _arch(capability: str) -> int:
    digits = capability.replace(".", "")
    return int(digits) if digits.isdecimal() else 0


def _keys(facts: FactSet, python: str, *, home: Path, fresh: bool) -> Keys:
    installed, machine = facts.need(DistributionsFact), facts.need(HostFact).machine
    memory = Memory(folder(home))
    torch, triton = installed.find("torch"), installed.find("triton")
    version = facts.need(TorchBuildFact).version
    torch_key = triton_key = None
    if torch and version:
        torch_key = memory.find(torch, python=python, machine=machine, version=version, fresh=fresh)
    if triton:
        triton_key = memory.find(
            triton, python=python, machine=machine, version=_stated(triton), fresh=fresh
        )
    return Keys(torch=torch_key, triton=triton_key, known=memory.marks())


def _stated(triton: Distribution) -> str:
    """Return the version that Triton's code states: its metadata may have a suffix."""
    try:
        text = read_text(Path(triton.path).parent / "triton/__init__.py") or ""
    except UnreadableError:
        text = ""
    return parse_version_file(text).get("__version__", triton.version)


def _systems(
    keys: Keys, nvidia: NvidiaFact, cuda: str | None, *, has_triton: bool
) -> frozenset[str]:
    """Return every hash that torch may give to the system here; empty if it cannot be told.

    Source: torch/_inductor/codecache.py, `CacheBase.get_system`, 2.9 to 2.15, read 2026-11-29:
    with a GPU its name, CUDA and Triton; without one nothing, or since 2.14 Triton.
    """
    triton = keys.triton.key if keys.triton else None
    if has_triton and triton is None:
        return frozenset()
    if nvidia.gpus and cuda:
        forms: list[object] = [
            {"device": {"name": gpu.name}, "version": {"triton": triton, "cuda": cuda}}
            for gpu in nvidia.gpus
        ]
    elif nvidia.num_devices:
        return frozenset()  # there are devices, but their names are not known
    else:
        forms = [{}, {"version": {"triton": triton}}]
    texts = (json.dumps(form, sort_keys=True) for form in forms)
    return frozenset(hashlib.sha256(text.encode()).hexdigest() for text in texts)
