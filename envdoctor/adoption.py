"""Take over an environment that somebody else made, once every file of it is what was recorded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from envdoctor import __version__, manifest, receipt
from envdoctor import profile as profiles
from envdoctor.diagnose import Place, gather, judge, policy_of
from envdoctor.durable import sync_folder
from envdoctor.errors import SpaceError, UsageError, VerificationError
from envdoctor.facts import DistributionsFact, HostFact, InterpreterFact
from envdoctor.filesystem import enough_space
from envdoctor.interpreter import Interpreter
from envdoctor.probes.interpreter import checked_prefix
from envdoctor.pylock import Wheel
from envdoctor.receipt import Receipt
from envdoctor.seals import folder_of_adopted, is_built, key, seal_of
from envdoctor.talk import Stages
from envdoctor.verify import UnfitEnvironmentError, ownerless, require_health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from envdoctor.facts import FactSet
    from envdoctor.manifest import Manifest
    from envdoctor.profile import Profile
    from envdoctor.report import Report
    from envdoctor.seals import Seal
    from envdoctor.settings import Settings
    from envdoctor.talk import Talk

_ID_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionRequest:
    """What to take over.

    Args:
        prefix: Folder of the environment, which stays where it is and as it is.
        profile: What it is to be held against; None for the bundled lists alone.
        asked: That profile as it was named.
        progress: Told bytes hashed and bytes in all, now and then.
    """

    prefix: Path
    profile: Profile | None = None
    asked: str = ""
    progress: Callable[[int, int], None] | None = None


def adopt(request: AdoptionRequest, *, settings: Settings, talk: Talk) -> Receipt:
    """Verify an environment by hash, check it, and write down what it is.

    Nothing in it is run or changed. Taken over again, it is looked at and written down anew.

    Raises:
        UsageError: There is no environment, or it is none that could be adopted.
        UnfitEnvironmentError: It does not pass; carries the report if a check says why.
    """
    env = _adoptable(request.prefix)
    stages, started = Stages(talk), _now()
    seal = _writable(seal_of(env, settings.home), settings.home)
    with enough_space(settings.home):
        with stages.stage("verify", "every recorded file by hash, checks"):
            policy = policy_of(request.profile, prefix=env, expect_gpu=None)
            place = Place(prefix=env, all_records=True, deep=True, progress=request.progress)
            facts = gather(place, policy)
            report = judge(facts, profile=request.profile)
            require_health(report, env)
            if request.profile:
                _require_asked(request.profile, facts, env)
        if strays := ownerless(facts):
            stages.note(f"{len(strays)} files belong to no package; they are sealed as they are")
        with stages.stage("seal", "manifest, hashes of the whole"):
            sealed = _sealed(env)
        result = _receipt(request, facts, report, env=env, started=started)
        result = msgspec.structs.replace(
            result, tree=sealed.tree, finished=_now(), seconds=dict(stages.seconds)
        )
        sync_folder(settings.home)
        manifest.write(sealed, seal.manifest)
        receipt.write(result, seal.receipt)
    return result


def _sealed(env: Path) -> Manifest:
    try:
        return manifest.make(env)
    except OSError as error:
        raise VerificationError(
            f"{error.filename or env}: {error.strerror}", reference="environment-not-readable"
        ) from error


def _writable(seal: Seal, home: Path) -> Seal:
    """Make the folder of a seal, before minutes go into what it is to hold.

    Raises:
        SpaceError: It cannot be made.
    """
    try:
        seal.manifest.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpaceError(
            f"cannot make folders in {home}: {error.strerror}",
            reference="home-not-writable",
            hint="set ENVDOCTOR_HOME to a folder of your own",
        ) from error
    return seal


def adopted(home: Path) -> Iterator[Receipt]:
    """Yield the receipts of all environments that were adopted, also of those that are gone."""
    for path in sorted(folder_of_adopted(home).glob("*.json")):
        found = receipt.read(path)
        if found is not None and found.adopted:
            yield found


def forget_gone(home: Path) -> list[str]:
    """Throw away the seals of adopted environments that are no longer there; return their paths."""
    gone = [one.adopted for one in adopted(home) if not Path(one.adopted).is_dir()]
    for path in gone:
        seal = seal_of(Path(path), home)
        seal.manifest.unlink(missing_ok=True)
        seal.receipt.unlink(missing_ok=True)
    return gone


def _adoptable(prefix: Path) -> Path:
    env = checked_prefix(prefix).resolve()
    if is_built(env):
        raise UsageError(f"{env}: envdoctor built it; it has its seal", reference="adopted-already")
    if not (env / "pyvenv.cfg").is_file() and not (env / "conda-meta").is_dir():
        raise UsageError(
            f"{env}: no virtual environment (no pyvenv.cfg, no conda-meta in it)",
            reference="no-environment",
            hint="what the system's package manager owns changes without notice",
        )
    return env


def _require_asked(profile: Profile, facts: FactSet, env: Path) -> None:
    """Refuse an environment that lacks what its profile requires, in the versions it requires.

    Raises:
        UnfitEnvironmentError: It does.
    """
    python = facts.need(InterpreterFact).version
    lacking = [] if SpecifierSet(profile.python.requires).contains(python) else [f"Python {python}"]
    installed = facts.need(DistributionsFact)
    for text in profile.packages.require:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:  # a file or URL: its version is not told
            continue
        found = installed.version_of(wanted.name.lower().replace("_", "-"))
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        if not found or not wanted.specifier.contains(found, prereleases=True):
            lacking.append(f"{text} (found {found or 'none'})")
    if lacking:
        raise UnfitEnvironmentError(
            f"{env} is not what profile {profile.name} requires: {', '.join(lacking)}",
            reference="not-of-profile",
        )


def _receipt(
    request: AdoptionRequest, facts: FactSet, report: Report, *, env: Path, started: str
) -> Receipt:
    data: dict[str, Any] = report.to_dict()
    dists = facts.need(DistributionsFact).distributions
    packages = tuple(
        Wheel(
            name=dist.name,
            version=dist.version,
            file="",
            sha256="",
            size=None,
            source=dist.installer or "",
        )
        for dist in dists
    )
    profile = request.profile
    return Receipt(
        id=_identity(packages),
        generation=key(env),
        previous=None,
        profile=msgspec.to_builtins(profile) if profile else {},
        profile_sha256=profiles.digest(profile) if profile else "",
        asked=request.asked,
        adopted=str(env),
        source="it was there",
        left_out=(),
        packages=packages,
        python=_python(facts, env),
        uv=None,
        envdoctor_version=__version__,
        host=data["environment"]["host"] or {},
        link_mode="",
        variables_dropped=(),
        started=started,
        finished=started,
        seconds={},
        report=data,
    )


def _identity(packages: tuple[Wheel, ...]) -> str:
    text = json.dumps(sorted((one.name, one.version) for one in packages))
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]


def _python(facts: FactSet, env: Path) -> Interpreter:
    """Return what is known of the interpreter without running it."""
    found = facts.need(InterpreterFact)
    return Interpreter(
        path=str((env / "bin/python").resolve()),
        version=found.version,
        build="",
        implementation="CPython",
        machine=facts.need(HostFact).machine,
        is_free_threaded=any("t/site-packages" in folder for folder in found.site_packages),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
