"""What pip is configured with, for uv, which reads none of it."""

from __future__ import annotations

import ast
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor import shell

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECTIONS = ("global", "install", ":env:")
"""In rising order of precedence: command section over global, variables over both."""
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PipConfig:
    """pip's settings that say where packages come from.

    Args:
        index_url: The index in place of PyPI; None if pip uses PyPI.
        extra_index_urls: Further indexes, which pip mixes with the first.
        find_links: Folders or pages of wheels, as written.
        constraints: Constraint files, as paths or URLs.
        no_index: True if pip asks no index at all.
        cert: Certificate bundle; empty if unset.
        proxy: Proxy URL; empty if unset.
        trusted_hosts: Hosts whose certificate pip does not check.
        timeout: Seconds a connection may stay silent; empty if unset.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    no_index: bool = False
    cert: str = ""
    proxy: str = ""
    trusted_hosts: tuple[str, ...] = ()
    timeout: str = ""

    @property
    def names_sources(self) -> bool:
        """True if pip looks anywhere but at PyPI."""
        return bool(self.index_url or self.extra_index_urls or self.find_links or self.no_index)


def read(variables: Mapping[str, str]) -> PipConfig | None:
    """Ask pip for its configuration: it lies in up to five files and in variables.

    Args:
        variables: Environment variables that pip is to see.

    Returns:
        The configuration, or None if no Python within reach has pip.
    """
    for python in _pythons(variables):
        argv = [str(python), "-m", "pip", "config", "list"]
        try:
            done = shell.run(argv, env=variables, timeout=_TIMEOUT_SECONDS)
        except TimeoutError:
            continue
        if done.returncode == 0:
            return parse(done.stdout)
    return None


def _pythons(variables: Mapping[str, str]) -> list[Path]:
    """Return interpreters to ask: this one, the one it was made from, the one on PATH."""
    name = f"python3.{sys.version_info.minor}"
    on_path = shutil.which("python3", path=variables.get("PATH"))
    found = [Path(sys.executable), Path(sys.base_prefix, "bin", name)]
    found += [Path(on_path)] if on_path else []
    return [path for path in dict.fromkeys(found) if path.is_file()]


def parse(text: str) -> PipConfig:
    """Parse what `pip config list` prints: lines of `section.key='value'`."""
    values: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        name, equals, quoted = line.partition("=")
        section, dot, key = name.strip().rpartition(".")
        if equals and dot and section in values and (value := _unquoted(quoted)) is not None:
            values[section][key.replace("_", "-").lower()] = value
    merged = {key: value for section in _SECTIONS for key, value in values[section].items()}
    return PipConfig(
        index_url=merged.get("index-url", "").strip() or None,
        extra_index_urls=_items(merged, "extra-index-url"),
        find_links=_items(merged, "find-links"),
        constraints=_items(merged, "constraint"),
        no_index=merged.get("no-index", "").strip().lower() in {"1", "true", "yes", "on", "y", "t"},
        cert=merged.get("cert", "").strip(),
        proxy=merged.get("proxy", "").strip(),
        trusted_hosts=_items(merged, "trusted-host"),
        timeout=merged.get("timeout", merged.get("default-timeout", "")).strip(),
    )


def _unquoted(text: str) -> str | None:
    """Return the string that a Python literal means; None if it is none."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _items(values: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values.get(key, "").split()))
