"""Put a lock's packages into a fresh environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor import pylock, uv_failures
from envdoctor.filesystem import GIGABYTE, require_space, tree_bytes

if TYPE_CHECKING:
    from envdoctor.profile import Profile
    from envdoctor.pylock import Lock
    from envdoctor.talk import Stages
    from envdoctor.workshop import Workshop

_TIMEOUT_SECONDS = 4 * 3600
_NEWS = re.compile(r"\s*(Downloading|Downloaded|Prepared|Installed|warning:)")


def require_room(profile: Profile, *, home: Path, cache: Path) -> None:
    """Refuse to begin without space for the environment and for what uv's cache lacks of it.

    Raises:
        SpaceError: There is less.
    """
    size = int(profile.build.disk_gb * GIGABYTE)
    env = 0 if profile.build.link_mode == "hardlink" else size
    unpacked = max(0, size - tree_bytes(cache)) if size else 0
    parts = f"{env / GIGABYTE:.1f} environment, {unpacked / GIGABYTE:.1f} uv's cache"
    require_space(home, need=env + unpacked, parts=parts)


def install(lock: Lock, profile: Profile, shop: Workshop) -> Path:
    """Make an environment in the staging folder and install the lock into it.

    Returns:
        Its folder.

    Raises:
        EnvdoctorError: uv failed; the subclass says how.
    """
    env = shop.staged / "env"
    lock_file = shop.staged / f"pylock.{profile.name}.toml"
    lock_file.write_text(pylock.write(lock), "utf-8")
    _uv(shop, "venv", "--relocatable", "--no-project", "--prompt", profile.name, str(env))
    _uv(
        shop,
        *("pip", "sync", str(lock_file), "--preview-features", "pylock"),
        *("--default-index", pylock.BUCKET, "--link-mode", profile.build.link_mode),
        prefix=env,
    )
    return env


class _Progress:
    """Hands on what is worth telling of uv's words, and how much it has written while it is silent.

    Args:
        stages: Takes it.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._last = ""

    def line(self, text: str, /) -> None:
        if _NEWS.match(text):
            self._last = text.strip()
            self._stages.tool(self._last)

    def waiting(self, pid: int, /) -> None:
        if written := written_bytes(pid):
            self._stages.tool(f"{self._last}; {written / GIGABYTE:.2f} GB written")


def written_bytes(pid: int) -> int:
    """Return how many bytes a process has written; 0 if the kernel does not say."""
    try:
        fields = Path(f"/proc/{pid}/io").read_text().split()
        return int(fields[fields.index("wchar:") + 1])
    except (OSError, ValueError, IndexError):
        return 0


def _uv(shop: Workshop, *arguments: str, prefix: Path | None = None) -> None:
    python = str(prefix) if prefix else shop.interpreter.path
    done = shop.run_uv(
        [*arguments, "--python", python], timeout=_TIMEOUT_SECONDS, watch=_Progress(shop.stages)
    )
    if done.returncode != 0:
        raise uv_failures.meaning(done.stderr)
