"""Find where torch.compile, Triton, FlashInfer and CUDA keep what they compile, and why there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal

from envdoctor.facts import FactSet, Unavailable, UserFact
from envdoctor.probes.files import is_folder
from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envdoctor.probes.subject import Subject

_FALSE = frozenset({"0", "", "false", "no", "off"})
_USER_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
_TEMPORARY_DEFAULTS = ("/tmp", "/var/tmp", "/usr/tmp")


@keyword_value
class CachePlace:
    """One cache, there or not.

    Args:
        kind: Whose it is.
        path: Its folder, absolute.
        decided_by: The variable that names it or its parent; `default` without one.
        disabled_by: The setting that leaves it unused, such as `CUDA_CACHE_DISABLE=1`.
    """

    kind: Literal["inductor", "headers", "triton", "flashinfer", "cuda"]
    path: str
    decided_by: str
    disabled_by: str = ""


def cache_places(subject: Subject, facts: FactSet) -> list[CachePlace]:
    """Return every cache that processes of the environment would use, each folder once."""
    found = [
        inductor_place(subject, facts),
        headers_place(subject, facts),
        triton_place(subject, facts),
        flashinfer_place(subject, facts),
        cuda_place(subject, facts),
    ]
    unique = {place.path: place for place in reversed(found) if place}
    return [place for place in found if place and unique[place.path] is place]


def inductor_place(subject: Subject, facts: FactSet) -> CachePlace | None:
    """Return Inductor's cache: FX graphs, AOTAutograd, code, tuning results.

    Source: torch/_inductor/runtime/cache_dir_utils.py 2.9 to 2.15, read 2026-11-29.
    """
    variables = subject.variables
    disabled = _switch(
        variables, on=("TORCHINDUCTOR_FORCE_DISABLE_CACHES",), off=("TORCHINDUCTOR_FX_GRAPH_CACHE",)
    )
    path = variables.get("TORCHINDUCTOR_CACHE_DIR")
    if path is not None:  # empty, it is the working folder: torch asks only if it is there
        return CachePlace(
            kind="inductor",
            path=_absolute(path),
            decided_by="TORCHINDUCTOR_CACHE_DIR",
            disabled_by=disabled,
        )
    default = _inductor_default(subject, facts)
    if default is None:
        return None
    path, decided_by = default
    return CachePlace(kind="inductor", path=path, decided_by=decided_by, disabled_by=disabled)


def headers_place(subject: Subject, facts: FactSet) -> CachePlace | None:
    """Return where Inductor keeps the C++ headers that it compiles into all code for the CPU.

    They lie in its default folder whatever TORCHINDUCTOR_CACHE_DIR says.

    Source: torch/_inductor/codecache.py 2.13, `_HEADER_DIR`, read 2026-11-30.
    """
    default = _inductor_default(subject, facts)
    if default is None:
        return None
    path, decided_by = default
    return CachePlace(kind="headers", path=f"{path}/precompiled_headers", decided_by=decided_by)


def _inductor_default(subject: Subject, facts: FactSet) -> tuple[str, str] | None:
    """Return Inductor's folder where no variable names one, and what decides it."""
    name = user_name(subject.variables, facts)
    if not name:
        return None
    folder, decided_by = _temporary_folder(subject)
    safe = re.sub(r'[\\/:*?"<>|]', "_", name)
    return f"{folder}/torchinductor_{safe}", decided_by


def triton_place(subject: Subject, facts: FactSet) -> CachePlace | None:
    """Return Triton's own cache; Inductor keeps kernels in its own where TRITON_CACHE_DIR is unset.

    Source: triton/knobs.py 3.6.0, read 2026-11-29: TRITON_CACHE_DIR, else `.triton/cache` below
    TRITON_HOME.
    """
    variables = subject.variables
    disabled = _switch(variables, on=("TRITON_ALWAYS_COMPILE",))
    if path := variables.get("TRITON_CACHE_DIR"):
        return CachePlace(
            kind="triton",
            path=_absolute(path),
            decided_by="TRITON_CACHE_DIR",
            disabled_by=disabled,
        )
    decided_by = "TRITON_HOME" if variables.get("TRITON_HOME") else "default"
    home = variables.get("TRITON_HOME") or home_folder(subject, facts)
    if not home:
        return None
    return CachePlace(
        kind="triton",
        path=f"{_absolute(home).rstrip('/')}/.triton/cache",
        decided_by=decided_by,
        disabled_by=disabled,
    )


def flashinfer_place(subject: Subject, facts: FactSet) -> CachePlace | None:
    """Return FlashInfer's cache.

    Source: flashinfer/jit/env.py, read 2026-11-30.
    """
    base = subject.variables.get("FLASHINFER_WORKSPACE_BASE")
    home = base or home_folder(subject, facts)
    if not home:
        return None
    return CachePlace(
        kind="flashinfer",
        path=f"{_absolute(home).rstrip('/')}/.cache/flashinfer",
        decided_by="FLASHINFER_WORKSPACE_BASE" if base else "default",
    )


def cuda_place(subject: Subject, facts: FactSet) -> CachePlace | None:
    """Return the driver's cache of code that it compiled from PTX.

    Source: CUDA programming guide, environment variables, read 2026-11-30.
    """
    variables = subject.variables
    path, home = variables.get("CUDA_CACHE_PATH"), home_folder(subject, facts)
    if not path and not home:
        return None
    return CachePlace(
        kind="cuda",
        path=_absolute(path) if path else f"{home}/.nv/ComputeCache",
        decided_by="CUDA_CACHE_PATH" if path else "default",
        disabled_by=_switch(variables, on=("CUDA_CACHE_DISABLE",)),
    )


def home_folder(subject: Subject, facts: FactSet) -> str | None:
    """Return the home folder without a slash at its end; None if nothing names one."""
    user = facts.get(UserFact)
    known = None if isinstance(user, Unavailable) else user.home
    home = subject.variables.get("HOME") or known
    return home.rstrip("/") if home else None


def user_name(variables: Mapping[str, str], facts: FactSet) -> str:
    """Return the user's name as `getpass.getuser` finds it; empty if nothing tells it."""
    for variable in _USER_NAMES:
        if name := variables.get(variable):
            return name
    user = facts.get(UserFact)
    if isinstance(user, Unavailable):
        return ""
    return user.name or f"uid_{user.uid}"


def _temporary_folder(subject: Subject) -> tuple[str, str]:
    """Return the folder for temporary files and what decides it, as `tempfile.gettempdir` does.

    It passes over folders that are not there or cannot be written.

    Source: Lib/tempfile.py of CPython 3.11, read 2026-11-30.
    """
    named = [(subject.variables.get(name, ""), name) for name in _TEMPORARY]
    named += [(folder, "default") for folder in _TEMPORARY_DEFAULTS]
    for folder, decided_by in named:
        if folder and _is_usable(subject, _absolute(folder)):
            return _absolute(folder).rstrip("/"), decided_by
    return "/tmp", "default"


def _is_usable(subject: Subject, folder: str) -> bool:
    if not is_folder(subject.locate(folder)):
        return False
    return not subject.is_this_machine or os.access(folder, os.W_OK | os.X_OK)


def _switch(variables: Mapping[str, str], *, on: Iterable[str], off: Iterable[str] = ()) -> str:
    """Return the setting that leaves a cache unused; empty if there is none."""
    for name in on:
        if variables.get(name, "0").lower() not in _FALSE:
            return f"{name}={variables[name]}"
    for name in off:
        if variables.get(name) == "0":
            return f"{name}=0"
    return ""


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  as torch does it, on text
