"""Readings of RECORD against the disk: what each distribution installed, and what is there now."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class DifferingFile:
    """A recorded file that is not on disk as recorded.

    Args:
        path: Absolute path.
        expected: What RECORD or its kind promises, such as `1234 bytes`.
        found: What is there, such as `missing`, `0 bytes` or `a folder`.
        others: Normalised names of other distributions that recorded this path.
    """

    path: str
    expected: str
    found: str
    others: tuple[str, ...] = ()


@keyword_value
class DistributionFiles:
    """The recorded files of one distribution against the disk.

    Args:
        name: Normalised name.
        path: Its `.dist-info` folder.
        num_files: Rows of RECORD that were compared.
        num_libraries: How many of them are shared objects.
        differing: The first of those that are not as recorded; METADATA that was edited apart.
        num_differing: How many are not as recorded.
        metadata_edited: True if METADATA can be read but is not what was installed.
        original_version: The version with which METADATA has its recorded hash, if it was edited
            and one of the versions stated elsewhere fits; else empty.
        unread: What was not looked at, and why.
        error: Why RECORD could not be read; empty if it could.
    """

    name: str
    path: str = ""
    num_files: int = 0
    num_libraries: int = 0
    differing: tuple[DifferingFile, ...] = ()
    num_differing: int = 0
    metadata_edited: bool = False
    original_version: str = ""
    unread: tuple[str, ...] = ()
    error: str = ""


@keyword_value
class SharedFile:
    """A path that several distributions recorded with different contents.

    Args:
        path: Absolute path.
        expected: What each owner recorded, in the order of the owners, such as `1234 bytes`.
        found: What is there.
    """

    path: str
    expected: tuple[str, ...]
    found: str


@keyword_value
class SharedPaths:
    """Paths that the same distributions all recorded.

    Args:
        owners: Their normalised names, at least two.
        num_paths: How many paths they share, but for each `__init__.py` that all recorded alike.
        num_conflicting: For how many of them their records differ.
        on_disk: For each owner, how many of the conflicting paths hold what it recorded, as far as
            sizes and the hashes that were taken tell.
        examples: The first conflicting paths, shared objects first.
    """

    owners: tuple[str, ...]
    num_paths: int = 0
    num_conflicting: int = 0
    on_disk: tuple[int, ...] = ()
    examples: tuple[SharedFile, ...] = ()


@keyword_value
class RecordsFact(Fact):
    """Recorded files against the disk, for the distributions that matter.

    Args:
        distributions: In import order.
        libraries: Recorded shared objects of all distributions that lie in the environment, whether
            or not they are on disk: pairs of normalised name and absolute path.
        shared: Paths that more than one distribution recorded, at least one of which matters.
        num_hashed: How many files' contents were compared with their recorded hash.
    """

    distributions: tuple[DistributionFiles, ...]
    libraries: tuple[tuple[str, str], ...] = ()
    shared: tuple[SharedPaths, ...] = ()
    num_hashed: int = 0
