"""Which of several `.dist-info` folders of one package is a leftover."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envdoctor.facts import Distribution, DistributionsFact


def duplicate_groups(installed: DistributionsFact) -> list[list[Distribution]]:
    """Return the distributions that one folder holds more than once, together.

    The same name in an environment and in the system packages below it is ordinary shadowing.
    """
    groups: dict[tuple[str, str], list[Distribution]] = {}
    for dist in installed.distributions:
        groups.setdefault((str(PurePath(dist.path).parent), dist.name), []).append(dist)
    return [group for group in groups.values() if len(group) > 1]


def leftovers_of(group: Sequence[Distribution]) -> dict[str, list[Distribution]]:
    """Return the leftovers among distributions of one name in one folder, by why they are.

    Returns:
        Empty if nothing tells which are leftovers; never all of the group.
    """
    code = group[0].code_version
    reasons = {
        "has no METADATA or RECORD": [
            dist for dist in group if not (dist.has_metadata and dist.has_record)
        ],
        f"disagrees with the code, which is {code}": [
            dist for dist in group if code and not dist.is_of_the_code
        ],
    }
    found: dict[str, list[Distribution]] = {}
    left = list(group)
    for why, dists in reasons.items():
        odd = [dist for dist in dists if dist in left]
        if odd and len(odd) < len(left):
            found[why] = odd
            left = [dist for dist in left if dist not in odd]
    return found if len(left) == 1 else {}
