"""Wheels of a few hundred bytes, and indexes that serve them: what the build's tests install."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel; without `files` it holds one module of its name."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    headers = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    content = {
        **(files or {f"{name.replace('-', '_')}.py": f"version = {version!r}\n"}),
        f"{info}/METADATA": "Metadata-Version: 2.1\n" + "\n".join(headers) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(
        f"{path},{_digest(text)},{len(text.encode())}\n" for path, text in content.items()
    )
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in content.items():
            archive.writestr(zipfile.ZipInfo(file), text)
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), f"{record}{info}/RECORD,,\n")
    return path


def make_torch(folder: Path, version: str, *, cuda: str | None = None) -> Path:
    """Write a stand-in for torch: its `version.py` says what it was built for."""
    release, _, tag = version.partition("+")
    local = tag or ("cu" + cuda.replace(".", "") if cuda else "cpu")
    files = {
        "torch/__init__.py": "from torch.version import __version__, cuda\n",
        "torch/version.py": f"__version__ = '{release}+{local}'\ncuda = {cuda!r}\n",
        **{f"torch/part_{n}.py": f"value = {n}\n" for n in range(40)},
    }
    return make_wheel(folder, "torch", version, files=files)


def make_index(folder: Path, wheels: Sequence[Path], *, sha256: str | None = None) -> str:
    """Lay wheels out as a simple index (PEP 503) and return its URL.

    Args:
        folder: Where.
        wheels: They stay where they are.
        sha256: Hash to state for every file in place of the true one.
    """
    for wheel in wheels:
        page = folder / wheel.name.split("-")[0].replace("_", "-") / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        stated = sha256 or hashlib.sha256(wheel.read_bytes()).hexdigest()
        with page.open("a") as stream:
            stream.write(f'<a href="{wheel.as_uri()}#sha256={stated}">{wheel.name}</a>\n')
    return folder.as_uri()


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
