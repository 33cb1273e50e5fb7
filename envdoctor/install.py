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
    from envdoctor.shell import Watch
    from envdoctor.store import Store
    from envdoctor.talk import Stages
    from envdoctor.workshop import Workshop

_TIMEOUT_SECONDS = 4 * 3600
_NEWS = re.compile(r"\s*(Downloading|Downloaded|Prepared|Installed|warning:)")


def require_room(profile: Profile, store: Store, *, wheels: int = 0) -> None:
    """Refuse to begin without space for what is to be fetched, unpacked and installed.

    Args:
        profile: Says how large the environment will be.
        store: Where.
        wheels: Bytes that are yet to be fetched.

    Raises:
        SpaceError: There is less.
    """
    size = int(profile.build.disk_gb * GIGABYTE)
    env = 0 if profile.build.link_mode == "hardlink" else size
    unpacked = max(0, size - tree_bytes(store.cache)) if size else 0
    parts = (
        f"{wheels / GIGABYTE:.1f} wheels, {unpacked / GIGABYTE:.1f} uv's cache, "
        f"{env / GIGABYTE:.1f} environment"
    )
    if env:
        parts += f'; link_mode = "hardlink" needs {(wheels + unpacked) / GIGABYTE:.1f}'
    require_space(store.home, need=wheels + env + unpacked, parts=parts)


def install(lock: Lock, profile: Profile, shop: Workshop) -> Path:
    """Make an environment in the staging folder and install the lock into it.

    Args:
        lock: Names wheels that lie in local folders.
        profile: What the environment is for.
        shop: Of the build.

    Returns:
        Its folder.

    Raises:
        EnvdoctorError: uv failed; the subclass says how.
    """
    env = shop.staged / "env"
    _uv(shop, "venv", "--relocatable", "--no-project", "--prompt", profile.name, str(env))
    _uv(
        shop,
        *_sync(lock, shop.staged / f"pylock.{profile.name}.toml"),
        *("--link-mode", profile.build.link_mode),
        prefix=env,
    )
    return env


def unpack(lock: Lock, shop: Workshop, /, *, watch: Watch) -> None:
    """Let uv unpack wheels into its cache while others are still being fetched.

    uv has no command for that, so they are installed into a folder that nobody needs, by links. A
    failure does not matter here: the installation meets it again, and tells of it.

    Args:
        lock: Names wheels that lie in local folders.
        shop: Of the build.
        watch: Told while it takes time.
    """
    folder = shop.staged / "unpacked"
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    target, lock_file = folder / f"{number}", shop.staged / f"pylock.unpack-{number}.toml"
    shop.run_uv(
        [
            *_sync(lock, lock_file),
            *("--target", str(target), "--link-mode", "symlink"),
            *("--python", shop.interpreter.path),
        ],
        timeout=_TIMEOUT_SECONDS,
        watch=watch,
    )


def _sync(lock: Lock, lock_file: Path) -> list[str]:
    lock_file.write_text(pylock.write(lock), "utf-8")
    return [
        "pip",
        "sync",
        str(lock_file),
        "--preview-features",
        "pylock",
        "--offline",
        "--no-index",
    ]


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
