"""The generations of built environments: which there are, and going back to the one before."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor import adoption, drift, receipt, store
from envdoctor import profile as profiles
from envdoctor.build_lock import held
from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.diagnose import diagnose
from envdoctor.errors import UsageError, VerificationError
from envdoctor.runner import select
from envdoctor.store import Store
from envdoctor.verify import UnfitEnvironmentError

if TYPE_CHECKING:
    from envdoctor.receipt import Receipt
    from envdoctor.settings import Settings

_FILE_CHECK = "package-files-damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One environment on disk.

    Args:
        profile: Profile that it was built from, or that it was held against.
        name: Of its folder.
        path: Its real folder.
        role: `current`, `previous`, `adopted`, `adopted, gone`, or empty.
        built: When its build or adoption ended, UTC; empty if its receipt cannot be read.
        torch: Version of torch in it; empty if there is none or its receipt cannot be read.
        is_in_use: True while a job holds it.
    """

    profile: str
    name: str
    path: str
    role: str
    built: str
    torch: str
    is_in_use: bool


def place_of(profile: str | None, settings: Settings) -> Store:
    """Return the folders of a profile of which something was built.

    Args:
        profile: Name of a profile, bundled or not, or path of its file; None for the one that was
            made current last.
        settings: Where environments lie.

    Raises:
        UsageError: There is no such profile.
        VerificationError: Nothing of it was built.
    """
    home = settings.home
    if profile is None:
        name = next(iter(store.known_profiles(home)), "")
    elif profile in store.all_profiles(home):
        name = profile
    else:
        name = profiles.load_profile(profile).name
    place = Store(home, name)
    if not name or not place.envs.is_dir():
        raise _nothing_built(profile, home)
    return place


def current_of(place: Store) -> str:
    """Return the name of the current generation.

    Raises:
        VerificationError: There is none.
    """
    name = place.linked("current")
    if name is None:
        raise _nothing_built(place.profile, place.home)
    return name


def listed(settings: Settings, profile: str | None = None) -> list[Generation]:
    """Return the environments of one profile or of all: the newest of each first, then adopted."""
    taken = [_adopted(one) for one in adoption.adopted(settings.home)]
    taken = [one for one in taken if profile in {None, one.profile}]
    known = store.all_profiles(settings.home)
    names = [name for name in known if profile in {None, name}]
    if profile and not names and not taken:
        names = [profile]
    places = [place_of(name, settings) for name in names]
    built = [_described(place, name) for place in places for name in place.generations()]
    return [*built, *taken]


def roll_back(place: Store) -> Path:
    """Make the previous generation the current one; the current one becomes the previous.

    Returns:
        Its folder.

    Raises:
        UsageError: There is no previous generation.
        UnfitEnvironmentError: Files of it are missing or have other sizes.
        BusyError: A build of the profile runs.
    """
    with held(place.lock_file, what=f"profile {place.profile}"):
        name = place.linked("previous")
        if name is None:
            raise UsageError(
                f"profile {place.profile} has no previous environment in {place.envs}",
                reference="no-previous-environment",
                hint="`envdoctor envs` lists those that there are",
            )
        require_files(place, name)
        store.make_current(place, name)
    return place.envs / name


def prune(place: Store, *, keep: int) -> list[str]:
    """Throw away old generations through the trash folder.

    Args:
        place: Whose.
        keep: How many stay; the current and the previous one always do.

    Returns:
        Names of those that stay only because a job runs in them.

    Raises:
        BusyError: A build of the profile runs.
    """
    with held(place.lock_file, what=f"profile {place.profile}"):
        in_use = store.prune(place, keep)
    store.empty_trash(place)
    return in_use


def require_files(place: Store, generation: str) -> None:
    """Hold the files of a generation against what its packages record and its manifest, by stat.

    Raises:
        UnfitEnvironmentError: Some are missing or changed.
    """
    env = place.envs / generation
    drift.require_none(env)
    report = diagnose(env, checks=select(BUILTIN_CHECKS, [_FILE_CHECK]), all_records=True)
    if report.exit_code:
        asked = shlex.quote(_asked(place, generation))
        first = next(iter(report.problems()), None)
        raise UnfitEnvironmentError(
            f"{env} is damaged: {first.message if first else 'its files could not be read'}",
            reference="generation-damaged",
            hint=f"build it anew: envdoctor build --profile {asked}",
            report=report,
        )


def _asked(place: Store, generation: str) -> str:
    """Return how the profile of a generation was named on the command line."""
    found = receipt.read(place.receipt(generation))
    return (found.asked if found else "") or place.profile


def _described(place: Store, name: str) -> Generation:
    found = receipt.read(place.receipt(name))
    role = next((link for link in ("current", "previous") if place.linked(link) == name), "")
    return Generation(
        profile=place.profile,
        name=name,
        path=str(place.envs.resolve() / name),
        role=role,
        built=found.finished if found else "",
        torch=_torch(found),
        is_in_use=store.is_leased(place, name),
    )


def _adopted(found: Receipt) -> Generation:
    return Generation(
        profile=str(found.profile.get("name", "-")),
        name=found.generation,
        path=found.adopted,
        role="adopted" if Path(found.adopted).is_dir() else "adopted, gone",
        built=found.finished,
        torch=_torch(found),
        is_in_use=False,
    )


def _torch(found: Receipt | None) -> str:
    packages = found.packages if found else ()
    return next((wheel.version for wheel in packages if wheel.name == "torch"), "")


def _nothing_built(profile: str | None, home: Path) -> VerificationError:
    what = f"no environment of profile {profile}" if profile else "no environment"
    return VerificationError(
        f"{what} is built in {home}",
        reference="no-environment-built",
        hint=f"build one: envdoctor build --profile {shlex.quote(profile or 'cpu')}",
    )
