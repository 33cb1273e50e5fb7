"""Read the file of a profile, laid over that of the profile which it extends."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envdoctor import user_files
from envdoctor.errors import UserFileError
from envdoctor.resources import bundled

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_ONE_FILE = ("name", "description", "extends")
"""Keys that are not handed down."""
_ADDED_TO = ("packages.forbid", "packages.exclude", "check.imports", "check.ignore")
_REQUIREMENTS = "packages.require"
_PROJECT = re.compile(r"\s*([A-Za-z0-9._-]*)")
_SEPARATORS = re.compile(r"[-_.]+")


def read(path: Path) -> dict[str, Any]:
    """Return the tables of a profile's file, with what it inherits.

    A table is merged key by key. Of `packages.require`, a requirement replaces that of the same
    package; `packages.forbid`, `packages.exclude`, `check.imports` and `check.ignore` are added
    to; any other list replaces the inherited one.

    Raises:
        UserFileError: A file cannot be read, is no TOML, or extends itself.
    """
    return _read(path, chain=())


def parent_of(path: Path) -> Path | None:
    """Return the file that a profile's file extends; None if it extends none.

    Raises:
        UserFileError: The file cannot be read, or there is no such parent.
    """
    return _parent(_tables(path), path)


def merged(base: Mapping[str, Any], own: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """Return tables laid over others.

    Args:
        base: What is inherited.
        own: What goes on top.
        key: Dotted key of both, with its trailing dot.
    """
    result = {name: value for name, value in base.items() if key or name not in _OF_ONE_FILE}
    for name, value in own.items():
        before, full = result.get(name), key + name
        if isinstance(before, dict) and isinstance(value, dict):
            result[name] = merged(before, value, f"{full}.")
        elif not isinstance(before, list) or not isinstance(value, list):
            result[name] = value
        elif full in _ADDED_TO:
            result[name] = [*before, *(item for item in value if item not in before)]
        elif full == _REQUIREMENTS:
            names = {_project(item) for item in value}
            result[name] = [*(item for item in before if _project(item) not in names), *value]
        else:
            result[name] = value
    return result


def _read(path: Path, *, chain: tuple[Path, ...]) -> dict[str, Any]:
    real = path.resolve()
    if real in chain:
        raise _wrong(path, f"extends: found a circle: {' -> '.join(map(str, (*chain, real)))}")
    raw = _tables(path)
    parent = _parent(raw, path)
    return raw if parent is None else merged(_read(parent, chain=(*chain, real)), raw)


def _parent(raw: Mapping[str, Any], path: Path) -> Path | None:
    name = raw.get("extends")
    if not isinstance(name, str) or not name:
        return None  # the schema says what is wrong with it
    is_path = "/" in name or name.endswith(".toml")
    parent = path.absolute().parent / name if is_path else bundled("profiles") / f"{name}.toml"
    if not parent.is_file():
        raise _wrong(path, f"extends: found {name!r}, wanted a bundled profile or a file's path")
    return parent


def _tables(path: Path) -> dict[str, Any]:
    content = user_files.read(path, reference="profile-not-readable")
    try:
        raw = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(path, f"not valid TOML: {error}") from error
    return _with_absolute_folders(raw, path.absolute().parent)


def _with_absolute_folders(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make folders of wheels absolute: they are relative to the file that names them."""
    sources = raw.get("sources")
    folders = sources.get("wheelhouse") if isinstance(sources, dict) else None
    if not isinstance(sources, dict) or not isinstance(folders, list):
        return raw
    found = [_absolute(item, folder) if isinstance(item, str) else item for item in folders]
    return {**raw, "sources": {**sources, "wheelhouse": found}}


def _absolute(text: str, folder: Path) -> str:
    return str(folder / Path(text).expanduser()) if text else text


def _project(requirement: object) -> str:
    match = _PROJECT.match(str(requirement))
    return _SEPARATORS.sub("-", match[1] if match else "").lower()


def _wrong(path: Path, problem: str) -> UserFileError:
    return UserFileError(f"{path}: {problem}", reference="profile-not-valid")
