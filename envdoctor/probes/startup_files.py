"""Read, never run, the files that Python runs at start: `.pth`, sitecustomize, usercustomize."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.probes.files import UnreadableError, is_folder, list_folder, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envdoctor.probes.subject import Subject

_LIMIT = 64 * 1024
_MAX_FILES = 200
_INSERTS = re.compile(r"sys\.path\.insert\s*\(|sys\.path\[\s*:?\s*0|sys\.path\s*=[^=]")
_FOLDER = re.compile(r"""["'](/[^"'\n\0]+)["']""")


def find_startup_files(subject: Subject, folders: Sequence[str]) -> dict[str, list[str]]:
    """Return the files that put folders in front of `sys.path`, with the folders they name.

    A folder that a `.pth` file merely lists comes after the environment's own and hides nothing, so
    such a file is left out. Where code puts the folder together, none can be named.

    Args:
        subject: What is looked at.
        folders: Folders of `sys.path`.

    Source: Python's `site` module documentation.
    """
    found: dict[str, list[str]] = {}
    for path in _candidates(subject, folders):
        code = _code(subject, path)
        if _INSERTS.search(code):
            named = dict.fromkeys(_FOLDER.findall(code))
            found[path] = [folder for folder in named if is_folder(subject.locate(folder))]
    return found


def _candidates(subject: Subject, folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        entries = list_folder(subject.locate(folder))
        for entry in [name for name in entries if name.endswith(".pth")][:_MAX_FILES]:
            yield f"{folder}/{entry}"
        for name in ("sitecustomize.py", "usercustomize.py"):
            if name in entries:
                yield f"{folder}/{name}"


def _code(subject: Subject, path: str) -> str:
    """Return the lines of a startup file that Python would run; empty if it cannot be read."""
    try:
        text = read_text(subject.locate(path), limit=_LIMIT) or ""
    except UnreadableError:
        return ""
    if not path.endswith(".pth"):
        return text
    return "\n".join(line for line in text.splitlines() if line.startswith(("import ", "import\t")))
