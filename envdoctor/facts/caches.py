"""Readings of the folders that compiled kernels are kept in."""

from __future__ import annotations

from typing import Literal

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value

CacheKind = Literal["triton", "inductor", "headers", "flashinfer", "vllm", "sglang", "tvm-ffi"]


@keyword_value
class PathOwner:
    """Who owns a path and whether the user may write to it.

    Args:
        path: The path, as the variables that name it spell it.
        uid: Numeric id of its owner; None if unknown.
        mode: Permission bits, such as 0o1777; None if unknown.
        is_writable: True if the environment's user may make files in it; None if unknown.
    """

    path: str
    uid: int | None = None
    mode: int | None = None
    is_writable: bool | None = None


@keyword_value
class PathOwnersFact(Fact):
    """What is known about paths without looking, from a snapshot.

    Where it names a cache's folder it is believed, and the folder's own owner and mode are not
    looked at: `envdoctor` may run as root, who can write anywhere. Its probe finds nothing.
    """

    owners: tuple[PathOwner, ...] = ()


@keyword_value
class PathStep:
    """One folder or link on the way from the root of the file system to a cache.

    Args:
        path: Where it is.
        uid: Its owner.
        mode: Type and permissions.
        target: Of a link, where it points; empty for a folder.
    """

    path: str
    uid: int
    mode: int
    target: str = ""


@keyword_value
class CacheEntry:
    """One entry of a cache that was read.

    Args:
        path: The entry's folder, or the file that is damaged.
        modified: When its metadata was last written, in seconds since the epoch.
        triton: Version of Triton that made it; empty if it does not say.
        arch: Architecture of the GPU it was made for, such as 90; None if it does not say.
        error: What is wrong with the file; empty if nothing is.
    """

    path: str
    modified: int
    triton: str = ""
    arch: int | None = None
    error: str = ""


@keyword_value
class CacheFolder:
    """A cache of compiled kernels.

    Args:
        kind: Whose cache it is.
        path: Its folder, there or not.
        variable: The variable that names it; empty for the default place.
        exists: True if it is there.
        owner: Of the folder or, if it is not there, of the nearest folder above that is.
        num_entries: Entries in it; 0 if nobody counted.
        entries: Some of them, evenly spread.
        steps: Folders and links on the way to it, itself last; empty if nobody looked.
    """

    kind: CacheKind
    path: str
    variable: str = ""
    exists: bool = True
    owner: PathOwner | None = None
    num_entries: int = 0
    entries: tuple[CacheEntry, ...] = ()
    steps: tuple[PathStep, ...] = ()


@keyword_value
class CachesFact(Fact):
    """Caches of compiled kernels that the environment's processes would use.

    Args:
        folders: Those of Triton and Inductor, there or not; those of others if they are there.
            `headers` is Inductor's default folder where a variable names another one: it keeps C++
            headers there all the same.
        triton_installed: When Triton was installed, in seconds since the epoch; None if unknown.
    """

    folders: tuple[CacheFolder, ...]
    triton_installed: int | None = None


@keyword_value
class EntryClass:
    """The entries of a cache that are of one class.

    Args:
        name: `valid`, `stale`, `foreign`, `corrupt` or `unknown`.
        num_entries: How many.
        num_bytes: Of all of them.
        example: Path of one below the cache's folder.
        reason: Why that one is of this class; empty for `valid`.
    """

    name: str
    num_entries: int
    num_bytes: int
    example: str = ""
    reason: str = ""


@keyword_value
class VerifiedCache:
    """What a verification of one cache found.

    Args:
        kind: Whose cache it is.
        path: Its folder.
        classes: Those that have entries.
        num_missing: Entries that were stamped for this environment and are gone.
    """

    kind: str
    path: str
    classes: tuple[EntryClass, ...] = ()
    num_missing: int = 0


@keyword_value
class CompileCachesFact(Fact):
    """What `envdoctor cache verify` would say.

    Args:
        caches: Those with a stamp; when deep, all that are there.
        is_deep: True if every byte was read.
    """

    caches: tuple[VerifiedCache, ...] = ()
    is_deep: bool = False
