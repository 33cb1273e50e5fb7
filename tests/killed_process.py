"""Commands that kill themselves before a chosen change to the disk; run as a program of its own.

    python -m tests.killed_process AT build PROFILE [force]
    python -m tests.killed_process AT rollback|prune

Every change that Python makes is a point to die at: an audit hook counts them and sends SIGKILL
before the one that is wanted. What uv does between two of them is hit by time, not by count.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from envdoctor import build, generations, profile, settings

if TYPE_CHECKING:
    from collections.abc import Callable

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link",
            "os.truncate", "subprocess.Popen", "fcntl.flock"}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def killer(at: int) -> tuple[Callable[[str, tuple[object, ...]], None], list[str]]:
    """Return an audit hook that kills this process before the change of a number, and its list."""
    seen: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if not _changes(event, arguments):
            return
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(event)

    return hook, seen


def _changes(event: str, arguments: tuple[object, ...]) -> bool:
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & _WRITING)
    # What is deleted file by file, relative to a descriptor, lies in the trash: one is as another.
    is_in_trash = event in {"os.remove", "os.rmdir"} and arguments[-1] != -1
    return event in _CHANGES and not is_in_trash


def main() -> None:
    """Run one command; print the changes it made, if it comes to its end."""
    at, command, *rest = sys.argv[1:]
    place = settings.load()
    if command == "build":
        request = build.BuildRequest(profile=profile.load_profile(rest[0]), force=len(rest) > 1)
        hook, seen = killer(int(at))
        sys.addaudithook(hook)
        build.build(request, settings=place, talk=lambda event: None)
    else:
        store = generations.place_of("tiny", place)
        hook, seen = killer(int(at))
        sys.addaudithook(hook)
        if command == "rollback":
            generations.roll_back(store)
        else:
            generations.prune(store, keep=2)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
