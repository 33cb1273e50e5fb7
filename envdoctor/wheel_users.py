"""Who needs which wheel of the wheelhouse."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from envdoctor import lockfile, receipt, store
from envdoctor.errors import UserFileError
from envdoctor.store import Store
from envdoctor.wheelhouse import Wheelhouse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def users_of_wheels(home: Path) -> Mapping[str, set[str]]:
    """Return by sha256 the profiles whose environments were built of it, and the imported locks."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for place in (Store(home, name) for name in store.all_profiles(home)):
        for generation in place.generations():
            built = receipt.read(place.receipt(generation))
            for wheel in built.packages if built else ():
                found[wheel.sha256].add(place.profile)
    for path in sorted(Wheelhouse(home / "wheels").locks.glob("pylock.*.toml")):
        try:
            locked = lockfile.read(path)
        except UserFileError:
            continue
        for wheel in locked.lock.wheels if locked else ():
            found[wheel.sha256].add(path.name)
    return dict(found)
