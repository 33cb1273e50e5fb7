"""Remember the keys of installed packages by what their RECORD says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from envdoctor.durable import replace_text
from envdoctor.probes.build_keys import (
    can_import,
    entry_prefix,
    is_known,
    module_suffixes,
    torch_key,
    triton_key,
)
from envdoctor.probes.files import UnreadableError, read_text

if TYPE_CHECKING:
    from envdoctor.facts import Distribution

_FILE = "keys.json"
_MAX_REMEMBERED = 200


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """The key of one installation.

    Args:
        package: `torch` or `triton`.
        version: As the package states it.
        python: Major and minor version of the interpreter that imports it.
        key: Of torch in hex; of Triton the whole text.
    """

    package: str
    version: str
    python: str
    key: str


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the packages of one environment.

    Args:
        torch: None if torch is not installed or its files cannot be read.
        triton: None if Triton is not installed or its files cannot be read.
        known: Name and version of every torch whose mark on pickles is known, by that mark.
    """

    torch: Key | None
    triton: Key | None
    known: dict[str, str]


class Memory:
    """Keys that were computed before, in a file that is replaced in one step.

    Args:
        folder: Where the file lies; made when there is something to write.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._keys = self._load()

    def find(
        self, dist: Distribution, *, python: str, machine: str, version: str, fresh: bool
    ) -> Key | None:
        """Return a package's key: as remembered, or computed anew.

        Args:
            dist: The package.
            python: Major and minor version of the interpreter.
            machine: As `uname -m` spells it.
            version: As the package's code states it.
            fresh: True to compute it whatever is remembered.

        Returns:
            None if its files cannot be read, or it is not known which of them count.
        """
        name = self._name(dist, python=python, version=version)
        if name and not fresh and name in self._keys:
            return self._keys[name]
        folder = Path(dist.path).parent / dist.name
        suffixes = module_suffixes(python, machine)
        # a build for a free-threaded Python, for one
        if not (is_known(dist.name, version) and can_import(folder, suffixes)):
            return None
        try:
            if dist.name == "torch":
                key = torch_key(folder, version=version, suffixes=suffixes).hex()
            else:
                key = triton_key(folder, version=version, suffixes=suffixes)
        except OSError:
            return None
        found = Key(package=dist.name, version=version, python=python, key=key)
        if name and self._keys.get(name) != found:
            self._keys[name] = found
            self._save()
        return found

    def marks(self) -> dict[str, str]:
        """Return what each torch that is remembered is called, by its mark on pickles."""
        return {
            entry_prefix(bytes.fromhex(key.key), python=key.python): f"torch {key.version}"
            for key in self._keys.values()
            if key.package == "torch"
        }

    @staticmethod
    def _name(dist: Distribution, *, python: str, version: str) -> str:
        """Return what a key is remembered by; empty without a RECORD."""
        try:
            record = read_text(f"{dist.path}/RECORD") or ""
        except UnreadableError:
            record = ""
        if not record:
            return ""
        text = f"{dist.name}\n{version}\n{python}\n{record}"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    def _load(self) -> dict[str, Key]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Key])
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
            return {}

    def _save(self) -> None:
        kept = dict(list(self._keys.items())[-_MAX_REMEMBERED:])
        text = json.dumps(msgspec.to_builtins(kept))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_text(self._path, text)
        except OSError:
            return  # it is computed again next time
