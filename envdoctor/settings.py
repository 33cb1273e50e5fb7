"""The only reader of environment variables that steer envdoctor."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Mapping


@keyword_value
class Settings:
    """What the environment variables ask for.

    Args:
        home: Folder of environments, caches and receipts, absolute.
        home_source: Variable that `home` comes from, or `default`.
        uv: A uv binary to use; None to look for one.
        variables: All variables, for the processes that envdoctor starts.
    """

    home: Path
    home_source: str = "default"
    uv: Path | None = None
    variables: Mapping[str, str] = field(repr=False, default_factory=dict)


def load(variables: Mapping[str, str] | None = None) -> Settings:
    """Read the settings.

    Args:
        variables: Environment variables; None for those of this process.
    """
    values = dict(os.environ if variables is None else variables)
    home, source = _home(values)
    uv = values.get("ENVDOCTOR_UV")
    return Settings(
        home=home.expanduser().absolute(),
        home_source=source,
        uv=Path(uv).expanduser() if uv else None,
        variables=values,
    )


def _home(values: Mapping[str, str]) -> tuple[Path, str]:
    if home := values.get("ENVDOCTOR_HOME"):
        return Path(home), "ENVDOCTOR_HOME"
    # Source: XDG Base Directory Specification; a relative path in it is to be ignored.
    data = values.get("XDG_DATA_HOME", "")
    if Path(data).is_absolute():
        return Path(data, "envdoctor"), "XDG_DATA_HOME"
    user = values.get("HOME")
    return Path(user or Path.home(), ".local/share/envdoctor"), "default"
