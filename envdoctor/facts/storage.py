"""Readings of the file systems that a run writes to."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class Mount:
    """One mounted file system.

    Args:
        path: Where it is mounted.
        kind: Such as `ext4`, `nfs4` or `tmpfs`.
        options: Such as `rw,noexec`.
    """

    path: str
    kind: str
    options: str = ""


@keyword_value
class StorageFact(Fact):
    """File systems and their free space.

    Args:
        mounts: In the order in which they were mounted.
        free: Pairs of a folder for temporary files and the bytes that are free there.
    """

    mounts: tuple[Mount, ...] = ()
    free: tuple[tuple[str, int], ...] = ()

    def mount_of(self, path: str) -> Mount | None:
        """Return the mount that a path lies on."""
        best: Mount | None = None
        for mount in self.mounts:
            inside = f"{path}/".startswith(f"{mount.path.rstrip('/')}/")
            # a later mount on the same path hides the one before
            if inside and (best is None or len(mount.path) >= len(best.path)):
                best = mount
        return best
