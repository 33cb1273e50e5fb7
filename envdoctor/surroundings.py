"""What has changed around an environment since it passed: driver, profile, lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from envdoctor import lockfile
from envdoctor.errors import UsageError
from envdoctor.locking import folder_of
from envdoctor.probes.nvidia import kernel_driver
from envdoctor.probes.subject import THIS_MACHINE
from envdoctor.profile import load_profile, with_requirements
from envdoctor.urls import mask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envdoctor.profile import Profile
    from envdoctor.receipt import Receipt

_SHOWN = 3


def changes(receipt: Receipt, *, root: Path = THIS_MACHINE) -> list[str]:
    """Return one sentence for each thing that is no longer as the receipt has it.

    Args:
        receipt: Of an environment of this machine.
        root: Where the machine's files are.
    """
    return [*_driver(receipt, root), *_profile(receipt)]


def _driver(receipt: Receipt, root: Path) -> Iterator[str]:
    before = receipt.report.get("environment", {}).get("driver")
    now = kernel_driver(root)
    if before != now:
        yield f"the NVIDIA driver was {before or 'none'}, is {now or 'none'}"


def _profile(receipt: Receipt) -> Iterator[str]:
    if not receipt.asked:
        return
    try:
        wanted = with_requirements(load_profile(receipt.asked), receipt.added)
    except UsageError as error:
        yield f"its profile can no longer be read: {error.message}"
        return
    # Not by the hash: a key that a later envdoctor knows is no change where it has its default.
    before = receipt.wanted()
    if before is None or _masked(wanted) != _masked(before):
        yield f"profile {receipt.asked} has changed since"
    if not receipt.adopted and not receipt.added:
        yield from _lock(receipt, wanted.name)


def _masked(profile: Profile) -> str:
    """Return a profile's content as receipts have it, without credentials."""
    return mask(msgspec.json.encode(profile).decode())


def _lock(receipt: Receipt, name: str) -> Iterator[str]:
    path = folder_of(receipt.asked) / lockfile.file_name(name, receipt.python)
    try:
        locked = lockfile.read(path)
    except UsageError as error:
        yield f"the lock of its profile can no longer be read: {error.message}"
        return
    if locked is None:
        return
    installed = {wheel.name: wheel.version for wheel in receipt.packages}
    wanted = {wheel.name: wheel.version for wheel in locked.lock.wheels}
    differing = [
        f"{one} {installed.get(one, '-')} -> {wanted.get(one, '-')}"
        for one in sorted({*installed, *wanted})
        if installed.get(one) != wanted.get(one)
    ]
    if differing:
        more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        yield f"{path.name} names other packages: {', '.join(differing[:_SHOWN])}{more}"
