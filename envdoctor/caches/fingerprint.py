"""What compiled code depends on besides its source, written down so that two machines compare."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import msgspec

from envdoctor.formats.printable import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIXES = ("TORCHINDUCTOR_", "TORCH_COMPILE", "TORCHDYNAMO_", "TRITON_")
_PLACES = ("_DIR", "_HOME", "_PATH", "_ROOT")
"""Ends of variables that say where something lies, not what is compiled."""

_OTHERWISE = (
    *("VERBOSE", "TRACE", "LOG", "DEBUG", "PROGRESS"),
    *("COMPILE_THREADS", "WORKER", "GRAPH_CACHE", "AUTOGRAD_CACHE", "AUTOTUNE_", "DISABLE_CACHES"),
)
"""Words in variables that change what is told, who compiles and what is kept, not what comes out.

Source: `_cache_config_ignore_prefix` in torch/_inductor/config.py 2.13, read 2026-11-30.
"""

_WORDS = {"torch_key": "torch's files", "triton_key": "Triton's files", "gpus": "GPUs"}
_OTHER_MACHINE = frozenset(
    {"torch", "torch_key", "triton", "triton_key", "cuda", "gpus", "python", "machine"}
)


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Where code was compiled.

    Args:
        torch: Version, such as `2.13.0+cpu`.
        torch_key: Key of its files in hex; empty if it was not computed.
        triton: Version; empty if it is not installed.
        triton_key: sha256 of Triton's own key; empty if it was not computed or there is no Triton.
        cuda: That torch was built for; empty if none.
        driver: Of NVIDIA; empty if there is none.
        gpus: Name and architecture of each kind of GPU, sorted.
        python: Major and minor version.
        machine: As `uname -m` spells it.
        variables: Those that change what is compiled, sorted.
    """

    torch: str = ""
    torch_key: str = ""
    triton: str = ""
    triton_key: str = ""
    cuda: str = ""
    driver: str = ""
    gpus: tuple[str, ...] = ()
    python: str = ""
    machine: str = ""
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        """A short name for exactly these values."""
        text = json.dumps(msgspec.to_builtins(self), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One field in which two fingerprints are not the same.

    Args:
        field: Its name.
        here: Its value in the one that was asked about.
        there: Its value in the other one.
    """

    field: str
    here: str
    there: str

    @property
    def is_of_another_machine(self) -> bool:
        """True if code for one is never looked up by the other."""
        return self.field in _OTHER_MACHINE

    def __str__(self) -> str:
        word = _WORDS.get(self.field, self.field)
        return f"{word} {self.there or 'none'} there, {self.here or 'none'} here"


def differences(here: Fingerprint, there: Fingerprint) -> list[Difference]:
    """Return the fields that differ; a key that one of them lacks is not held against the other."""
    found = []
    for field in here.__struct_fields__:
        ours, theirs = getattr(here, field), getattr(there, field)
        if ours == theirs or (field.endswith("_key") and not (ours and theirs)):
            continue
        found.append(Difference(field=field, here=_shown(ours), there=_shown(theirs)))
    return found


def relevant(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that change what is compiled, sorted."""
    return tuple(
        (encodable(name), encodable(value))
        for name, value in sorted(variables.items())
        if name.startswith(_PREFIXES)
        and not name.endswith(_PLACES)
        and not any(word in name for word in _OTHERWISE)
    )


def _shown(value: object) -> str:
    if not isinstance(value, tuple):
        text = str(value)
        return text[:12] if len(text) > 40 else text  # noqa: PLR2004  a key in hex
    parts = (f"{part[0]}={part[1]}" if isinstance(part, tuple) else str(part) for part in value)
    return ", ".join(parts)
