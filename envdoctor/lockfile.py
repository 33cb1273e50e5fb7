"""Locks that are kept beside profiles (PEP 751): read, write, compare.

A lock names files, not hosts: each wheel has its name, size, sha256 and a path relative to the
folder of wheels in which the lock is laid. Whatever source offers the same hash will do.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from envdoctor.errors import UserFileError
from envdoctor.pylock import Lock, Wheel
from envdoctor.toml_text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.interpreter import Interpreter

_SOURCE = "lock"
_VERSION = "1.0"
_NO_WORD = re.compile(r"[^a-z0-9_]+")

Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class _Hashes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sha256: Sha256


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    hashes: _Hashes


class _Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    version: str
    wheels: Annotated[tuple[_File, ...], msgspec.Meta(min_length=1, max_length=1)]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"):
    """What envdoctor adds to a lock.

    Args:
        schema: Version of this table.
        profile: Name of the profile.
        profile_sha256: Of what in it decides the packages.
        python: Interpreter and ABI, such as `cp311`.
        platform: Such as `linux_x86_64`.
    """

    schema: Literal[1] = 1
    profile: str
    profile_sha256: Sha256
    python: str
    platform: str


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    envdoctor: Header


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    lock_version: Literal["1.0"]
    packages: tuple[_Package, ...]
    tool: _Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A lock as it lies beside its profile.

    Args:
        header: For whom it is.
        lock: The files; it has no URLs.
    """

    header: Header
    lock: Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One package that differs between two locks.

    Args:
        name: Of the package.
        before: Its version before; None if it was not there.
        after: Its version now; None if it is not there any more. Equal to `before` if the file is
            another one of the same version.
    """

    name: str
    before: str | None
    after: str | None


def file_name(profile: str, interpreter: Interpreter) -> str:
    """Return the name of a profile's lock for an interpreter; PEP 751 allows no further dots."""
    return f"pylock.{profile}-{python_tag(interpreter)}-{platform_tag(interpreter)}.toml"


def python_tag(interpreter: Interpreter) -> str:
    """Return the interpreter and ABI that a lock is for, such as `cp311` or `cp313t`."""
    major, minor = interpreter.version.split(".")[:2]
    return f"cp{major}{minor}{'t' if interpreter.is_free_threaded else ''}"


def platform_tag(interpreter: Interpreter) -> str:
    """Return the platform that a lock is for, such as `linux_x86_64`."""
    return "linux_" + _NO_WORD.sub("_", interpreter.machine.lower())


def read(path: Path) -> Locked | None:
    """Read a lock; None if there is none.

    Raises:
        UserFileError: It is not valid.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _broken(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _broken(f"{path}: {error}") from error
    return parse(text, name=str(path))


def parse(text: str, *, name: str) -> Locked:
    """Read the text of a lock.

    Args:
        text: TOML.
        name: What to call it in messages.

    Raises:
        UserFileError: It is not valid.
    """
    try:
        document = msgspec.convert(tomllib.loads(text), _Document)
    except (tomllib.TOMLDecodeError, RecursionError, msgspec.ValidationError) as error:
        raise _broken(f"{name}: {error}") from error
    problems = list(_contradictions(document))
    if problems:
        raise _broken("\n".join(f"{name}: {problem}" for problem in problems))
    wheels = tuple(_wheel(package) for package in document.packages)
    return Locked(header=document.tool.envdoctor, lock=Lock(wheels=wheels, urls={}))


def text_of(locked: Locked) -> str:
    """Return a lock as it is written: the same packages give the same text."""
    header = locked.header
    lines = [
        f"lock-version = {quoted(_VERSION)}",
        'created-by = "envdoctor"',
    ]
    for wheel in locked.lock.wheels:
        file = quoted(wheel.file)
        lines += [
            "",
            "[[packages]]",
            f"name = {quoted(wheel.name)}",
            f"version = {quoted(wheel.version)}",
            (
                f"wheels = [{{ name = {file}, path = {file}, size = {wheel.size or 0},"
                f" hashes = {{ sha256 = {quoted(wheel.sha256)} }} }}]"
            ),
        ]
    lines += ["", "[tool.envdoctor]", f"schema = {header.schema}"]
    lines += [
        f"{key} = {quoted(value)}"
        for key, value in msgspec.to_builtins(header).items()
        if key != "schema"
    ]
    return "\n".join(lines) + "\n"


def differences(before: Lock | None, after: Lock) -> list[Difference]:
    """Return the packages that two locks do not have in common, sorted by name."""
    old = {wheel.name: wheel for wheel in before.wheels} if before else {}
    new = {wheel.name: wheel for wheel in after.wheels}
    names = sorted(
        name
        for name in old.keys() | new.keys()
        if name not in old or name not in new or old[name].sha256 != new[name].sha256
    )
    return [
        Difference(
            name=name,
            before=old[name].version if name in old else None,
            after=new[name].version if name in new else None,
        )
        for name in names
    ]


def _wheel(package: _Package) -> Wheel:
    (file,) = package.wheels
    return Wheel(
        name=package.name,
        version=package.version,
        file=file.name,
        sha256=file.hashes.sha256,
        size=file.size,
        source=_SOURCE,
    )


def _contradictions(document: _Document) -> Iterator[str]:
    names = [package.name for package in document.packages]
    if names != sorted(set(names)):
        yield "packages: wanted each once, sorted by name"
    for package in document.packages:
        (file,) = package.wheels
        if file.path != file.name or "/" in file.path:
            yield f"{package.name}: found path {file.path!r}, wanted the file's name"
        try:
            name, version, _, _ = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            yield f"{package.name}: found {file.name!r}, wanted the name of a wheel"
            continue
        if canonicalize_name(package.name) != package.name or name != package.name:
            yield f"{package.name}: found a wheel of {name}, wanted its own, by its normalised name"
        if str(version) != package.version and version != _version(package.version):
            yield f"{package.name}: found a wheel of {version}, wanted {package.version}"


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:
        return None


def _broken(message: str) -> UserFileError:
    return UserFileError(
        message, reference="lock-not-valid", hint="`envdoctor lock` writes a new one"
    )
