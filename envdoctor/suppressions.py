"""Which problems shall not count, from the profile and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.facts import Suppression
from envdoctor.runner import unknown_check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envdoctor.check import Check
    from envdoctor.profile import Profile


def chosen_suppressions(
    profile: Profile | None, ignored: Iterable[str], checks: Iterable[Check]
) -> tuple[Suppression, ...]:
    """Return the suppressions of a run.

    Args:
        profile: Has some in `[check] ignore`, each with its reason.
        ignored: Ids given to `--ignore`.
        checks: All checks.

    Raises:
        UsageError: No check has the id of a suppression.
    """
    found = [Suppression(check=name, reason="ignored by --ignore") for name in ignored]
    if profile is not None:
        origin = f"profile {profile.name}"
        found += [
            Suppression(check=item.id, reason=item.reason, culprit=item.culprit, origin=origin)
            for item in profile.check.ignore
        ]
    known = {check.id for check in checks}
    for suppression in found:
        if suppression.check not in known:
            raise unknown_check(suppression.check, known, origin=suppression.origin)
    return tuple(found)
