"""Which of the packages that wrote the same paths is the intruder, told from facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.cuda_packages import suffix_major
from envdoctor.probes.record import matters
from envdoctor.requirements import name_of
from envdoctor.value import value

if TYPE_CHECKING:
    from collections.abc import Collection

    from envdoctor.facts import DistributionsFact, RecordsFact, SharedPaths


@value
class Collision:
    """Two packages that recorded different contents for the same paths.

    Args:
        keep: The one that belongs here.
        drop: The intruder.
        num_kept: How many of the conflicting paths hold what `keep` recorded.
        num_dropped: How many hold what `drop` recorded.
        dependants: Packages that require the intruder.
        shared: The paths.
    """

    keep: str
    drop: str
    num_kept: int
    num_dropped: int
    dependants: tuple[str, ...]
    shared: SharedPaths


def find_collisions(
    records: RecordsFact, installed: DistributionsFact, required: Collection[str]
) -> list[Collision]:
    """Return the pairs of packages that overwrote each other.

    Args:
        records: Says which paths are shared.
        installed: Says who requires whom.
        required: Normalised names of the packages that torch requires: these belong here.
    """
    found: list[Collision] = []
    for group in records.shared:
        if not group.num_conflicting:
            continue
        counts = dict(zip(group.owners, group.on_disk, strict=True))
        keep, *others = sorted(
            group.owners,
            key=lambda name: (
                name != "torch" and name not in required,
                not matters(name),
                not dependants_of(name, installed),
                -counts[name],
            ),
        )
        found += [
            Collision(
                keep=keep,
                drop=drop,
                num_kept=counts[keep],
                num_dropped=counts[drop],
                dependants=dependants_of(drop, installed),
                shared=group,
            )
            for drop in others
        ]
    return found


def dependants_of(name: str, installed: DistributionsFact) -> tuple[str, ...]:
    """Return who requires a package, leaving out CUDA packages, which come and go together."""
    return tuple(
        dist.name
        for dist in installed.distributions
        if suffix_major(dist.name) is None
        and any(name_of(line) == name and "extra ==" not in line for line in dist.requires)
    )
