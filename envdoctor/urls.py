"""URLs as people may see them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*@")


def mask(text: str) -> str:
    """Return the text with user names, passwords and tokens taken out of its URLs."""
    return _CREDENTIALS.sub("****@", text)


def local_path(location: str) -> Path | None:
    """Return the path that a `file:` URL or a plain path means; None for any other URL."""
    if location.startswith("file:"):
        return Path(unquote(location.removeprefix("file:").removeprefix("//localhost")))
    return None if "://" in location else Path(location)


def origin(url: str) -> str:
    """Return where a file comes from: the folder of a local one, else the host."""
    path = local_path(url)
    return (
        str(path.parent)
        if path
        else mask(url).partition("://")[2].partition("/")[0].rpartition("@")[2]
    )
