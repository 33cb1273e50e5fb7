"""Whether a change can be why torch or CUDA stopped working, and why that is thought."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from envdoctor.compatibility import minimum_drivers, strays
from envdoctor.requirements import decides_cuda
from envdoctor.states import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from envdoctor.states import Section, State

Suspicion = Literal["likely", "possible", "unlikely", "cannot"]
"""`cannot` means: it cannot break torch or CUDA; other programs may notice it."""

Values = tuple[str | None, str | None]
Answer = tuple[Suspicion, str]

_INSTALLERS = frozenset({"envdoctor", "pip", "pipx", "uv", "virtualenv", "wheel"})
_PYTHON_BINDINGS = frozenset({"nvidia-ml-py"})
"""Packages of the CUDA family by name that torch does not run on."""

_ENOUGH_BYTES = 1024**3
_WORDS_OF_VARIABLES: tuple[tuple[tuple[str, ...], Suspicion, str], ...] = (
    (("LD_",), "likely", "the loader takes libraries from where it says"),
    (("PYTHON",), "likely", "Python takes modules from where it says"),
    (("CUDA_", "NVIDIA_"), "likely", "CUDA sees the GPUs that it names"),
    (("NCCL_", "UCX_", "GLOO_", "NVSHMEM_"), "likely", "collectives go the way that it says"),
    (("TORCH", "PYTORCH_", "TRITON_"), "likely", "torch and its compilers read it"),
    (("PATH",), "possible", "compilers and ptxas are looked up in it"),
    (("HOME", "TMPDIR", "USER", "XDG_"), "possible", "compile caches lie elsewhere then"),
    (("CONDA_", "VIRTUAL_ENV"), "unlikely", "it tells which environment a shell has activated"),
)


def suspicion_of(
    section: Section, key: str, values: Values, *, before: State, after: State
) -> Answer:
    """Judge one change.

    Args:
        section: What kind of thing changed.
        key: Its name.
        values: What it was and what it is; None where it is not there.
        before: The state that it was in.
        after: The state that it is in.
    """
    if section == "package":
        return _package(key, values, before=before, after=after)
    if section == "driver":
        return _driver(key, values, after)
    return _BY_SECTION[section](key, values)


def _package(name: str, values: Values, *, before: State, after: State) -> Answer:
    if decides_cuda(name) and name not in _PYTHON_BINDINGS:
        return "likely", "torch runs on it"
    if name in _INSTALLERS:
        return "cannot", "it installs packages; nothing imports it while a program runs"
    if stray := next((item for item in strays() if fnmatchcase(name, item.name)), None):
        return "possible", stray.why
    known = [state.of_torch for state in (before, after) if state.of_torch is not None]
    if any(name in names for names in known):
        return "possible", "torch requires it"
    pure = name in before.pure or name in after.pure
    both = all(
        name in state.pure
        for state, value in zip((before, after), values, strict=True)
        if value is not None
    )
    if pure and both and known:
        return "cannot", "it is Python alone, and nothing that torch requires asks for it"
    return "unlikely", "nothing that torch requires asks for it"


def _driver(key: str, values: Values, after: State) -> Answer:
    old, new = values
    if key != "driver" or old is None or new is None:
        return "likely", "CUDA starts through the driver"
    major = after.sections.get("torch", {}).get("cuda", "").partition(".")[0]
    minimum = minimum_drivers().get(int(major)) if major.isdigit() else None
    if minimum and _numbers(new) < _numbers(minimum):
        return "likely", f"it is older than {minimum}, the lowest for this torch"
    if _numbers(new) > _numbers(old):
        return "unlikely", "a newer driver runs what an older one ran"
    return "possible", "an older driver may lack what this torch needs"


def _file(key: str, values: Values) -> Answer:
    del key
    if values[1] is None:
        return "unlikely", "it is as it was installed now"
    return "likely", "it is not as it was installed"


def _library(key: str, values: Values) -> Answer:
    del key
    old, new = values
    if old is None or new is None:
        return "unlikely", "another torch or package loads other libraries"
    was_own, is_own = (path.startswith(ENVIRONMENT) for path in (old, new))
    if was_own and not is_own:
        return "likely", "torch loads it from outside of the environment now"
    if is_own and not was_own:
        return "possible", "torch loads it from the environment now"
    return "unlikely", "another package holds it now"


def _variable(key: str, values: Values) -> Answer:
    del values
    for starts, suspicion, reason in _WORDS_OF_VARIABLES:
        if key.startswith(starts):
            return suspicion, reason
    return "unlikely", "it does not steer torch or CUDA"


def _python(key: str, values: Values) -> Answer:
    del key
    minors = {".".join((value or "").split(".")[:2]) for value in values}
    if len(minors) > 1:
        return "likely", "compiled packages are for one minor version of Python"
    return "unlikely", "compiled packages are for all of its patch releases"


def _host(key: str, values: Values) -> Answer:
    new = values[1] or ""
    if key == "shm_bytes":
        enough = new.isdigit() and int(new) >= _ENOUGH_BYTES
        return ("cannot", "there is enough of it") if enough else ("possible", "there is little")
    if key == "disk free":
        enough = new.startswith("1 GiB")
        return ("cannot", "there is enough of it") if enough else ("possible", "there is little")
    if key in ("machine", "system"):
        return "likely", "compiled packages are for one kind of machine"
    if key == "glibc":
        return "possible", "wheels need a lowest version of it"
    return "unlikely", "torch does not depend on it"


_BY_SECTION: dict[Section, Callable[[str, Values], Answer]] = {
    "file": _file,
    "torch": lambda _key, _values: ("likely", "it is torch itself"),
    "library": _library,
    "gpu": lambda _key, _values: ("likely", "kernels are for some GPUs only"),
    "variable": _variable,
    "python": _python,
    "host": _host,
    "other": lambda _key, _values: ("unlikely", "it bears on torch in rare cases only"),
}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
