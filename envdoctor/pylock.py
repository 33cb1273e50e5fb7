"""Read what uv resolved, and write what it is to install (PEP 751)."""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    parse_wheel_filename,
)

from envdoctor.errors import IntegrityError
from envdoctor.toml_text import quoted
from envdoctor.urls import local_path, mask, origin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from packaging.tags import Tag

_SHA256_LENGTH = 64


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """One resolved file.

    Args:
        name: Normalised name of the distribution.
        version: With its local tag where the file has one.
        file: File name.
        sha256: Of the file.
        size: Bytes; None where the source does not say.
        source: Host or folder that it comes from.
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int | None
    source: str


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A resolution: one wheel for each package, sorted by name.

    Args:
        wheels: The wheels.
        urls: Where each file is, by file name; may hold credentials.
    """

    wheels: tuple[Wheel, ...]
    urls: dict[str, str]

    def find(self, name: str) -> Wheel | None:
        """Return the wheel of a package."""
        return next((wheel for wheel in self.wheels if wheel.name == name), None)

    def path(self, wheel: Wheel) -> Path | None:
        """Return where a wheel lies in a local folder; None if it does not."""
        path = local_path(self.urls.get(wheel.file, "nowhere://"))
        return path if path is not None and path.is_file() else None


def read(text: str, ranks: Mapping[Tag, int], *, hashes: Collection[str] = ()) -> Lock:
    """Read a lock, keeping of each package the wheel that an installer would take.

    Args:
        text: TOML as uv writes it.
        ranks: Tags that the interpreter takes, each with its rank; 0 is best.
        hashes: Take no wheel but of these sha256; empty for any.

    Raises:
        IntegrityError: A package occurs twice, or has no wheel with a hash that fits.
    """
    try:
        packages = tomllib.loads(text)["packages"]
        chosen = [_best(package, ranks, hashes) for package in packages]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise _broken(f"uv's lock cannot be read: {error}") from error
    names = [wheel.name for wheel, _ in chosen]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _broken(f"resolved twice: {', '.join(twice)}")
    chosen.sort(key=lambda pair: pair[0].name)
    return Lock(
        wheels=tuple(wheel for wheel, _ in chosen), urls={wheel.file: url for wheel, url in chosen}
    )


def write(lock: Lock) -> str:
    """Write the lock for uv to install from.

    uv finds what it has unpacked by the address of the wheel, so that is to be the same each time.
    """
    lines = ['lock-version = "1.0"', 'created-by = "envdoctor"']
    for wheel in lock.wheels:
        url = lock.urls[wheel.file]
        size = f", size = {wheel.size}" if wheel.size is not None else ""
        lines += [
            "",
            "[[packages]]",
            f"name = {quoted(wheel.name)}",
            f"version = {quoted(wheel.version)}",
            (
                f"wheels = [{{ name = {quoted(wheel.file)}, url = {quoted(url)}{size},"
                f" hashes = {{ sha256 = {quoted(wheel.sha256)} }} }}]"
            ),
        ]
    return "\n".join(lines) + "\n"


def _best(
    package: Mapping[str, Any], ranks: Mapping[Tag, int], hashes: Collection[str]
) -> tuple[Wheel, str]:
    name, version = str(package["name"]), str(package.get("version", ""))
    fitting = [
        (rank, _wheel(name, version, entry), str(entry["url"]))
        for entry in package.get("wheels", ())
        if (rank := _rank(_file_name(entry), ranks)) is not None
    ]
    if not fitting:
        raise _broken(f"{name} {version} has no wheel that fits this Python and platform")
    if hashes:
        fitting = [item for item in fitting if item[1].sha256 in hashes]
        if not fitting:
            raise _broken(f"{name} {version} has other files there than the one that is locked")
    _, wheel, url = min(fitting, key=lambda item: (item[0], item[1].file))
    if len(wheel.sha256) != _SHA256_LENGTH:
        raise _broken(f"{wheel.file} comes without a sha256 from {wheel.source}")
    return wheel, url


def _wheel(name: str, version: str, entry: Mapping[str, Any]) -> Wheel:
    url, size = str(entry["url"]), entry.get("size")
    return Wheel(
        name=canonicalize_name(name),
        version=version,
        file=_file_name(entry),
        sha256=str(entry.get("hashes", {}).get("sha256", "")),
        size=size if isinstance(size, int) else _size_on_disk(url),
        source=mask(origin(url)),
    )


def _file_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or PurePosixPath(unquote(urlsplit(str(entry["url"])).path)).name)


def _size_on_disk(url: str) -> int | None:
    path = local_path(url)
    try:
        return path.stat().st_size if path else None
    except OSError:
        return None


def _rank(file: str, ranks: Mapping[Tag, int]) -> tuple[int, tuple[int, str]] | None:
    """Return a sort key: best tag first, then highest build number; None if it does not fit."""
    try:
        _, _, build, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    found = min((ranks[tag] for tag in tags if tag in ranks), default=None)
    number, letters = build or (0, "")
    return None if found is None else (found, (-number, letters))


def _broken(message: str) -> IntegrityError:
    return IntegrityError(mask(message), reference="lock-not-usable")


def total_size(wheels: Iterable[Wheel]) -> int:
    """Return the bytes of all files whose size is known."""
    return sum(wheel.size or 0 for wheel in wheels)
