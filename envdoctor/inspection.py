"""What can be told from wheels before they are installed: whose files collide, which CUDA it is."""

from __future__ import annotations

import configparser
import re
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envdoctor.errors import IntegrityError
from envdoctor.probes.torch_build import parse_version_file
from envdoctor.urls import local_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from envdoctor.profile import Profile
    from envdoctor.pylock import Lock, Wheel

_TEXT_BYTES = 4 * 1024 * 1024
_SHOWN = 3
_PREFIX = "<prefix>/"
_OF_THE_ENVIRONMENT = re.compile(
    rf"{_PREFIX}(pyvenv\.cfg|bin/(python[\d.]*|activate(\.\w+)?|activate_this\.py))"
)
"""What makes a folder a virtual environment; no package has it for its own."""
_SITE = re.compile(r"lib(?:64)?/python[\d.]+/site-packages/")
_UNREADABLE = (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError)
"""What zipfile raises for an archive that is torn, encrypted or compressed in an unknown way."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a wheel would put into an environment.

    Args:
        files: By path, relative to the folder of packages: what tells equal contents from others.
            Those that lie elsewhere begin with `<prefix>/`, as in `<prefix>/bin/NAME`.
        torch_variant: `cpu` or `cu128` as `torch/version.py` has it; empty where there is no such
            file.
        cuda: What that file calls the CUDA version; empty for none.
    """

    files: Mapping[str, object]
    torch_variant: str = ""
    cuda: str = ""


def inspect(lock: Lock, profile: Profile) -> None:
    """Refuse wheels that would overwrite each other's files, and a torch of another variant.

    Args:
        lock: Names wheels that lie in local folders.
        profile: What they are for.

    Raises:
        IntegrityError: They would, it is one, or a wheel cannot be read.
    """
    found = {wheel: read(wheel, _path(lock, wheel)) for wheel in lock.wheels}
    for wheel, contents in found.items():
        if wheel.name == "torch":
            _require_variant(wheel, contents, profile.torch.variant)
    require_no_collisions({wheel.name: contents for wheel, contents in found.items()})


def read(wheel: Wheel, path: Path) -> Contents:
    """Read a wheel's table of contents.

    Raises:
        IntegrityError: It is no readable archive, or would put files elsewhere.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            files = dict(_installed(archive))
            values = parse_version_file(_text(archive, "torch/version.py"))
    except _UNREADABLE as error:
        raise IntegrityError(
            f"{wheel.file} cannot be read: {error}",
            reference="wheel-not-readable",
            hint="run the same command again: it is fetched anew if it was damaged here",
        ) from error
    outside = next((name for name in files if _leads_out(name)), None)
    if outside is not None:
        raise IntegrityError(
            f"{wheel.file} has a file {outside!r}, wanted files inside of the environment",
            reference="wheel-leads-out",
        )
    taken = next(filter(_OF_THE_ENVIRONMENT.fullmatch, files), None)
    if taken is not None:
        raise IntegrityError(
            f"{wheel.file} would overwrite {taken.removeprefix(_PREFIX)} of the environment itself",
            reference="wheel-overwrites-environment",
        )
    cuda, other = values.get("cuda", ""), values.get("hip") or values.get("xpu")
    variant = (
        f"cu{cuda.replace('.', '')}" if cuda else f"no CUDA build ({other})" if other else "cpu"
    )
    return Contents(files, torch_variant=variant if values else "", cuda=cuda)


def require_no_collisions(contents: Mapping[str, Contents]) -> None:
    """Refuse packages that own one path with different contents.

    Equal contents are fine: many packages bring the same `nvidia/__init__.py`.

    Args:
        contents: By package.

    Raises:
        IntegrityError: There are some; names both and the path.
    """
    first: dict[str, tuple[str, object]] = {}
    shared: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, one in contents.items():
        for path, content in one.files.items():
            owner, there = first.setdefault(path, (name, content))
            if there != content:
                shared[owner, name].append(path)
    if shared:
        lines = [
            f"{one} and {two} both own {', '.join(paths[:_SHOWN])}"
            + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
            for (one, two), paths in shared.items()
        ]
        raise IntegrityError(
            f"{'; '.join(lines)}: one would overwrite the other",
            reference="wheels-collide",
            hint="leave one of them out: packages.exclude in the profile",
        )


def _require_variant(wheel: Wheel, contents: Contents, wanted: str) -> None:
    if contents.torch_variant and contents.torch_variant != wanted:
        raise IntegrityError(
            f"wanted {wanted}; torch.version.cuda is {contents.cuda or None} "
            f"(torch {wheel.version} from {wheel.source}, {wheel.file})",
            reference="wrong-variant",
            hint="give a wheel of that variant with --wheels DIR, or correct the profile's "
            "torch.variant and same_variant",
        )


def _path(lock: Lock, wheel: Wheel) -> Path:
    path = local_path(lock.urls[wheel.file])
    if path is None:
        raise ValueError(f"{wheel.file} was not fetched")
    return path


def _installed(archive: zipfile.ZipFile) -> Iterator[tuple[str, object]]:
    """Yield where each file will lie, with what tells equal contents: size and CRC-32."""
    for info in archive.infolist():
        if info.is_dir():
            continue
        top, _, rest = info.filename.partition("/")
        if top.endswith(".data") and rest:
            yield _place(top, rest), (info.file_size, info.CRC)
        else:
            yield info.filename, (info.file_size, info.CRC)
        if top.endswith(".dist-info") and rest == "entry_points.txt":
            yield from _programs(_text(archive, info.filename))


def _place(top: str, rest: str) -> str:
    """Return where a file of the folder NAME-VERSION.data goes (PEP 427)."""
    kind, _, path = rest.partition("/")
    if kind in {"purelib", "platlib"}:
        return path
    if kind == "data" and (match := _SITE.match(path)):
        return path[match.end() :]
    folders = {"scripts": "bin/", "data": "", "headers": f"include/{top.partition('-')[0]}/"}
    return f"{_PREFIX}{folders.get(kind, kind + '/')}{path}"


def _programs(text: str) -> Iterator[tuple[str, object]]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are as they are
    try:
        parser.read_string(text)
    except configparser.Error:  # uv will say so
        return
    for section in ("console_scripts", "gui_scripts"):
        if parser.has_section(section):
            yield from ((f"{_PREFIX}bin/{name}", target) for name, target in parser.items(section))


def _text(archive: zipfile.ZipFile, name: str) -> str:
    """Return a file of an archive; empty if it has none of the name."""
    try:
        with archive.open(name) as stream:
            return stream.read(_TEXT_BYTES).decode("utf-8", "surrogateescape")
    except KeyError:
        return ""


def _leads_out(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/")
