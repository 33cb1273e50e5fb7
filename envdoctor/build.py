"""Build an environment beside the old one, and put it in place once it has passed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from envdoctor import __version__, drift, manifest, receipt, store, uv
from envdoctor import profile as profiles
from envdoctor.errors import EnvdoctorError
from envdoctor.import_check import require_imports
from envdoctor.install import require_room
from envdoctor.locking import resolved
from envdoctor.preparation import prepare, umask
from envdoctor.receipt import Receipt, UvRecord
from envdoctor.session import held_store
from envdoctor.stock import installed
from envdoctor.talk import Stages
from envdoctor.verify import UnfitEnvironmentError, require_same_files, verify_files

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.profile import Profile
    from envdoctor.pylock import Lock
    from envdoctor.report import Report
    from envdoctor.resolve import Resolution
    from envdoctor.settings import Settings
    from envdoctor.store import Store
    from envdoctor.talk import Talk
    from envdoctor.workshop import Workshop

_ID_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to build.

    Args:
        profile: What the environment is to hold.
        asked: Name of that profile, or path of its file, to be told and to be looked at again.
        added: Requirements that it holds beyond its file's.
        wheels: Folders of wheels to look into before any index.
        python: Path, command or version of the Python to build on; None for the running one.
        uv: Path of the uv binary; None to find one.
        force: True to build anew what is already there and good.
        locks: Folder of the profile's locks; None to use none.
        locked: True to take nothing but what the lock names.
        wait: True to wait for another build of the profile to end, False to refuse.
        offline: True to ask no network: wheels come from the wheelhouse and from local folders.
    """

    profile: Profile
    asked: str = ""
    added: tuple[str, ...] = ()
    wheels: tuple[Path, ...] = ()
    python: str | None = None
    uv: Path | None = None
    force: bool = False
    locks: Path | None = None
    locked: bool = False
    wait: bool = True
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What came of it.

    Args:
        receipt: The receipt of the environment.
        path: Its folder, not through `current`.
        current: The link that now means it.
        is_new: False if it was there already.
    """

    receipt: Receipt
    path: Path
    current: Path
    is_new: bool


def build(request: BuildRequest, *, settings: Settings, talk: Talk) -> Built:
    """Build the environment of a profile, verify it, and make it the current one.

    Whatever happens, the environment that was current stays so until the new one has passed.

    Args:
        request: What to build.
        settings: Where to keep it, and the variables of this process.
        talk: Told of each stage.

    Raises:
        EnvdoctorError: It could not be built; the subclass says why.
        KeyboardInterrupt: The user stopped it; what was begun is gone.
    """
    stages = Stages(talk)
    with held_store(request, settings=settings, stages=stages) as place, umask(0o022):
        for name in store.clean(place):
            stages.note(f"threw away what an unfinished build left: {name}; its wheels are kept")
        try:
            return _build(_Job(request, settings, place, stages))
        except KeyboardInterrupt:
            where = f" in stage {stages.current}" if stages.current else ""
            current = place.linked("current")
            stages.note(
                f"stopped{where}; run the same command to go on; "
                f"{f'current is still {current}' if current else 'there is no current yet'}"
            )
            raise
        finally:
            _tidy(place, stages)


@dataclass(frozen=True, slots=True)
class _Job:
    request: BuildRequest
    settings: Settings
    store: Store
    stages: Stages

    @property
    def profile(self) -> Profile:
        return self.request.profile


def _build(job: _Job) -> Built:
    started, path = _now(), store.new_log(job.store)
    with path.open("w", encoding="utf-8") as log:
        try:
            with job.stages.stage("prepare", "uv, Python and package sources"):
                shop, what = prepare(
                    job.request, settings=job.settings, place=job.store, stages=job.stages, log=log
                )
            if job.store.linked("current") is None:
                require_room(job.profile, job.store)
            with job.stages.stage("resolve", f"profile {job.profile.name}"):
                resolution = resolved(
                    what,
                    shop,
                    folder=job.request.locks,
                    strict=job.request.locked,
                    asked=job.request.asked,
                )
            identity = _identity(resolution.lock, shop)
            if not job.request.force and (built := _reuse(job, shop, resolution, identity)):
                return built
            with shop.wheelhouse.used():
                return _build_new(job, shop, resolution, identity=identity, started=started)
        except EnvdoctorError:
            job.stages.note(f"log: {path}")
            raise


def _identity(lock: Lock, shop: Workshop) -> str:
    """Return a hash of what decides the content of an environment."""
    files = [(wheel.name, wheel.version, wheel.file, wheel.sha256) for wheel in lock.wheels]
    python = (shop.interpreter.path, shop.interpreter.build)
    text = json.dumps([files, python, shop.uv.version])
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]


def _reuse(job: _Job, shop: Workshop, resolution: Resolution, identity: str) -> Built | None:
    """Return the environment that is there already and still good, as the current one."""
    for name in job.store.generations():
        found = receipt.read(job.store.receipt(name))
        if found is None or found.id != identity:
            continue
        env = job.store.envs / name
        try:
            made = manifest.read(job.store.manifest(name))
            sealed = [entry.path for entry in made.entries] if made else []
            report = verify_files(env, resolution.lock, job.profile, shop, sealed=sealed)
            drift.require_none(env)
        except UnfitEnvironmentError as error:
            job.stages.note(f"{name} is there but damaged, building anew: {error.message}")
            continue
        # What is installed is the same; what it is wanted for may have changed.
        found = msgspec.structs.replace(found, report=report.to_dict(), **_asked(job.request))
        receipt.write(found, job.store.receipt(name))
        before = job.store.linked("current")
        store.make_current(job.store, name)
        again = "" if before == name else "; it becomes current again"
        again += f", {before} is the previous one" if before not in {None, name} else ""
        job.stages.note(f"built already, and its files are complete: {env}{again}")
        return Built(receipt=found, path=env, current=job.store.envs / "current", is_new=False)
    return None


def _build_new(
    job: _Job, shop: Workshop, resolution: Resolution, *, identity: str, started: str
) -> Built:
    stages, place = job.stages, job.store
    require_room(job.profile, place, wheels=shop.wheelhouse.missing_bytes(resolution.lock))
    lock, env = installed(resolution.lock, resolution.plan, shop)
    resolution = replace(resolution, lock=lock)
    with stages.stage("verify", "names, versions, every recorded file, checks"):
        report = verify_files(env, lock, job.profile, shop)
    with stages.stage("import", ", ".join(job.profile.check.imports)):
        verified = manifest.scan(env)
        require_imports(env, job.profile, shop)
        require_same_files(env, verified)
    with stages.stage("seal", "manifest, hashes of the whole"):
        sealed = manifest.make(env)
    generation = store.unused_generation(place, identity)
    result = _receipt(job, shop, resolution, report=report, generation=generation, started=started)
    result = msgspec.structs.replace(result, tree=sealed.tree)
    path = store.put(place, env, generation)
    manifest.write(sealed, place.manifest(generation))
    receipt.write(result, place.receipt(generation))
    store.make_current(place, generation)
    stages.note(f"in place: {path}")
    for name in store.prune(place, job.profile.build.keep):
        stages.note(f"kept {name}: a job runs in it")
    return Built(receipt=result, path=path, current=place.envs / "current", is_new=True)


def _receipt(
    job: _Job,
    shop: Workshop,
    resolution: Resolution,
    *,
    report: Report,
    generation: str,
    started: str,
) -> Receipt:
    # The report was made where the environment was built; it is to speak of where it will lie.
    text = json.dumps(report.to_dict())
    final = text.replace(str(shop.staged / "env"), str(job.store.envs / generation))
    found: dict[str, Any] = json.loads(final)
    return Receipt(
        id=generation.partition("-")[0],
        generation=generation,
        previous=job.store.linked("current"),
        **_asked(job.request),
        source=resolution.candidate.source,
        left_out=resolution.left_out,
        packages=resolution.lock.wheels,
        python=shop.interpreter,
        uv=UvRecord(path=str(shop.uv.path), version=shop.uv.version, sha256=shop.uv.sha256),
        envdoctor_version=__version__,
        host=found["environment"]["host"] or {},
        link_mode=job.profile.build.link_mode,
        variables_dropped=uv.foreign(job.settings.variables),
        started=started,
        finished=_now(),
        seconds=dict(job.stages.seconds),
        report=found,
    )


def _asked(request: BuildRequest) -> dict[str, Any]:
    """Return the fields of a receipt that say what was asked."""
    return {
        "profile": msgspec.to_builtins(request.profile),
        "profile_sha256": profiles.digest(request.profile),
        "asked": request.asked,
        "added": request.added,
    }


def _tidy(place: Store, stages: Stages) -> None:
    """Throw away staging and delete the trash; say so where it takes time."""
    store.clean(place)
    if any(place.trash.glob("*/env")) or any(place.trash.glob("*/pyvenv.cfg")):
        with stages.stage("tidy", "deleting what is no longer needed"):
            store.empty_trash(place)
    store.empty_trash(place)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
