"""URLs as people may see them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

# A URL that was taken for a path has lost one of its slashes.
_CREDENTIALS = re.compile(r"(?:(?<=://)|(?<=\bhttp:/)|(?<=\bhttps:/))[^/\s'\"]*@")
_SECRET_PARAMETER = re.compile(
    r"([?&][\w.-]*(?:token|key|passw|secret|signature|credential|auth)[\w.-]*=)[^&#,\s'\"]+",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """Return the text with user names, passwords and tokens taken out of its URLs."""
    return _SECRET_PARAMETER.sub(r"\1****", _CREDENTIALS.sub("****@", text))


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
