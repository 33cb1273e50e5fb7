"""The uv binary: finding it, its variables, and what its failures mean."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from envdoctor import shell
from envdoctor.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envdoctor.pip_config import PipConfig
    from envdoctor.settings import Settings

MINIMUM = Version("0.13")
_TIMEOUT_SECONDS = 30
_PREFIXES = ("UV_", "PYTHON")
_FOREIGN = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that would let the calling environment reach into the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """A uv binary that was asked for its version."""

    path: Path
    version: str
    sha256: str


def find(explicit: Path | None, settings: Settings) -> Uv:
    """Find uv: `--uv`, ENVDOCTOR_UV, the `uv` package of this environment, PATH.

    Raises:
        ToolError: It is nowhere, too old, or does not run.
    """
    named = explicit or settings.uv
    places = [named] if named else [_packaged(), _on_path(settings.variables)]
    path = next((place for place in places if place and place.is_file()), None)
    if path is None:
        looked = "the package `uv` of this environment, PATH"
        if named:
            looked = f"{named}, which is {'a folder' if named.is_dir() else 'not there'}"
        raise ToolError(
            f"uv is missing; looked in: {looked}",
            reference="uv-not-found",
            hint="pip install uv, or give its path with --uv",
        )
    path = path.absolute()
    return Uv(path=path, version=_version(path, settings), sha256=_sha256(path))


def variables(settings: Settings, *, cache: Path, pip: PipConfig) -> dict[str, str]:
    """Return variables for uv, without those that would steer it.

    Args:
        settings: Hold the variables of this process.
        cache: uv's cache folder.
        pip: pip's certificate, proxy and hosts are handed on.
    """
    dropped = foreign(settings.variables)
    kept = {name: value for name, value in settings.variables.items() if name not in dropped}
    own = {
        "UV_CACHE_DIR": str(cache),
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        # Leaves out files that hold times and paths, so that equal builds are equal.
        "UV_NO_INSTALLER_METADATA": "1",
        "SSL_CERT_FILE": pip.cert,
        "UV_INSECURE_HOST": " ".join(pip.trusted_hosts),
        "UV_HTTP_TIMEOUT": pip.timeout if pip.timeout.isdigit() else "",
        "HTTPS_PROXY": pip.proxy,
        "HTTP_PROXY": pip.proxy,
    }
    return kept | {name: value for name, value in own.items() if value}


def foreign(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables that would steer uv or a Python of the new environment."""
    return tuple(
        sorted(name for name in environment if name.startswith(_PREFIXES) or name in _FOREIGN)
    )


def _packaged() -> Path | None:
    try:
        from uv import find_uv_bin  # noqa: PLC0415  the package may be absent; PATH is asked then

        return Path(find_uv_bin())
    # UvNotFound is a FileNotFoundError
    except (ImportError, FileNotFoundError):
        return None


def _on_path(environment: Mapping[str, str]) -> Path | None:
    found = shutil.which("uv", path=environment.get("PATH"))
    return Path(found) if found else None


def _version(path: Path, settings: Settings) -> str:
    try:
        done = shell.run([str(path), "--version"], env=settings.variables, timeout=_TIMEOUT_SECONDS)
    except TimeoutError as error:
        raise ToolError(f"{path}: {error}", reference="uv-does-not-run") from error
    words = done.stdout.split()
    try:
        version = Version(words[1]) if words[:1] == ["uv"] else None
    except (IndexError, InvalidVersion):
        version = None
    if done.returncode != 0 or version is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(
            f"{path}: is not uv: {said[0] if said else f'exit code {done.returncode}'}",
            reference="uv-does-not-run",
        )
    if version < MINIMUM:
        raise ToolError(
            f"{path} is uv {version}, wanted {MINIMUM} or newer",
            reference="uv-too-old",
            hint="pip install --upgrade uv",
        )
    return str(version)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
