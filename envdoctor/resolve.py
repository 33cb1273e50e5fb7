"""Ask the sources of a plan, in order, for one set of packages."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from envdoctor import chains, pylock, uv_failures
from envdoctor.errors import EnvdoctorError, IntegrityError, NoSolutionError, SourceError
from envdoctor.toml_text import array, quoted
from envdoctor.urls import mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from envdoctor.chains import Parents
    from envdoctor.plan import BuildPlan, Candidate
    from envdoctor.profile import Profile
    from envdoctor.pylock import Lock
    from envdoctor.workshop import Workshop

_TIMEOUT_SECONDS = 900
_REFERENCES: Mapping[type[EnvdoctorError], str] = {
    NoSolutionError: "no-solution",
    IntegrityError: "no-usable-hash",
    SourceError: "no-source",
}
"""References of the final error, by kind; the first that was met tells most."""
_NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What is to be installed.

    Args:
        plan: What was asked of which sources.
        lock: The files.
        candidate: The way that led to them.
        left_out: Sources that do not serve, with the reasons.
    """

    plan: BuildPlan
    lock: Lock
    candidate: Candidate
    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a resolution is bound to, besides its profile."""

    pins: Mapping[str, str]
    locked: Lock | None

    def constraints(self) -> str:
        """Return it in the form of a constraints file."""
        wheels = self.locked.wheels if self.locked else ()
        pins = {**self.pins, **{wheel.name: wheel.version for wheel in wheels}}
        return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def resolve(
    plan: BuildPlan,
    shop: Workshop,
    *,
    pins: Mapping[str, str] = _NONE,
    locked: Lock | None = None,
) -> Resolution:
    """Return the resolution of the first candidate that has everything.

    Args:
        plan: Sources, in order.
        shop: Of the build.
        pins: Versions that packages other than torch must have.
        locked: Take exactly these files, wherever they are; None for whatever fits.

    Raises:
        NoSolutionError: At least one source answered, and none has what is wanted.
        SourceError: No source answered.
        IntegrityError: The only sources that have it give no usable hashes, or other files.
    """
    left_out = [(one.source, one.reason) for one in plan.left_out]
    failures: list[EnvdoctorError] = []
    for source, reason in left_out:
        shop.stages.note(f"left out {source}: {reason}")
    for candidate in plan.candidates:
        if locked and candidate.torch != _torch_pin(locked):
            continue
        try:
            lock = _try(plan, candidate, shop, wanted=_Wanted(pins, locked))
        except (NoSolutionError, SourceError, IntegrityError) as error:
            failures.append(error)
            left_out.append((f"{candidate.source} ({candidate.torch})", error.message))
            shop.stages.note(f"left out {candidate.source}: {error.message}")
            continue
        torch = lock.find("torch")
        if torch:
            shop.stages.note(f"torch {torch.version} comes from {torch.source}: {candidate.source}")
        return Resolution(plan=plan, lock=lock, candidate=candidate, left_out=tuple(left_out))
    raise _exhausted(plan, left_out, failures)


def project_file(profile: Profile, candidate: Candidate) -> str:
    """Return a pyproject.toml that asks for the profile.

    It is the one form in which uv can be told to take some packages from one index and all others
    from elsewhere.
    """
    lines = [
        "[project]",
        f"name = {quoted(f'profile-{profile.name}')}",
        'version = "0"',
        f"dependencies = {array([candidate.torch, *profile.packages.require])}",
    ]
    if index := candidate.named_index:
        lines += ["[tool.uv.sources]"]
        lines += [f"{quoted(name)} = {{ index = {quoted(index.name)} }}" for name in index.packages]
        lines += [
            "[[tool.uv.index]]",
            f"name = {quoted(index.name)}",
            f"url = {quoted(index.url)}",
            "explicit = true",
        ]
    return "\n".join(lines) + "\n"


def compile_options(plan: BuildPlan, candidate: Candidate, *, cutoff: str) -> list[str]:
    """Return the options of `uv pip compile` that say where to look and what to leave out."""
    options = ["--no-index"] if candidate.no_index else []
    options += ["--default-index", candidate.default_index] if candidate.default_index else []
    # pip takes the best version of all its indexes, so its configuration was written for that.
    options += ["--index-strategy", "unsafe-best-match"] if candidate.extra_indexes else []
    for option, values in (
        ("--index", candidate.extra_indexes),
        ("--find-links", candidate.find_links),
        ("--constraints", plan.constraints),
    ):
        options += [word for value in values for word in (option, value)]
    if cutoff:
        options += ["--exclude-newer", cutoff]
        # The PyTorch index states no upload times; what comes from a named index is pinned.
        named = candidate.named_index.packages if candidate.named_index else ()
        options += [w for name in named for w in ("--exclude-newer-package", f"{name}=false")]
    return options


def _try(plan: BuildPlan, candidate: Candidate, shop: Workshop, *, wanted: _Wanted) -> Lock:
    profile = plan.profile
    folder = shop.staged / "resolve"
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(project_file(profile, candidate))
    (folder / "excludes.txt").write_text("\n".join(profile.packages.exclude) + "\n")
    (folder / "pins.txt").write_text(wanted.constraints())
    text = _compile(plan, candidate, shop, folder=folder, cutoff=profile.sources.exclude_newer)
    files = wanted.locked.wheels if wanted.locked else ()
    hashes = {wheel.sha256 for wheel in files}
    lock = pylock.read(text, shop.interpreter.tags(), hashes=hashes)
    if hashes and len(lock.wheels) != len(files):
        raise IntegrityError(
            f"it resolves to {len(lock.wheels)} packages, of the {len(files)} that are locked",
            reference="not-as-locked",
        )
    _refuse_other_variants(profile, lock)
    if forbidden := _forbidden(profile, lock):
        parents = _parents(plan, candidate, shop, folder=folder)
        requirements = [candidate.torch, *profile.packages.require]
        raise _forbidden_error(forbidden, parents, requirements)
    return lock


def _torch_pin(locked: Lock) -> str:
    torch = locked.find("torch")
    return f"torch=={torch.version}" if torch else ""


def _compile(
    plan: BuildPlan, candidate: Candidate, shop: Workshop, *, folder: Path, cutoff: str
) -> str:
    output = folder / "pylock.toml"
    output.unlink(missing_ok=True)
    form = ["--format", "pylock.toml", "--output-file", str(output)]
    argv = _arguments(shop, folder, form)
    argv += compile_options(plan, candidate, cutoff=cutoff)
    done = shop.run_uv(argv, timeout=_TIMEOUT_SECONDS)
    if done.returncode == 0:
        return output.read_text("utf-8")
    if cutoff and uv_failures.is_cutoff_without_dates(done.stderr):
        shop.stages.note(
            f"{candidate.source} states no upload times: trying without the limit of {cutoff}"
        )
        return _compile(plan, candidate, shop, folder=folder, cutoff="")
    raise uv_failures.meaning(done.stderr)


def _parents(plan: BuildPlan, candidate: Candidate, shop: Workshop, *, folder: Path) -> Parents:
    """Return who requires what; empty if uv does not say."""
    form = ["--annotation-style", "line", "--no-header"]
    for cutoff in dict.fromkeys((plan.profile.sources.exclude_newer, "")):
        argv = _arguments(shop, folder, form)
        argv += compile_options(plan, candidate, cutoff=cutoff)
        done = shop.run_uv(argv, timeout=_TIMEOUT_SECONDS)
        if done.returncode == 0:
            return chains.parents_of(done.stdout)
    return {}


def _arguments(shop: Workshop, folder: Path, form: Sequence[str]) -> list[str]:
    return [
        *("pip", "compile", str(folder / "pyproject.toml"), *form),
        *("--excludes", str(folder / "excludes.txt")),
        *("--python", shop.interpreter.path, "--only-binary", ":all:"),
        *("--constraints", str(folder / "pins.txt")),
    ]


def _refuse_other_variants(profile: Profile, lock: Lock) -> None:
    torch = lock.find("torch")
    tag = torch.version.partition("+")[2] if torch else ""
    if torch and tag not in {"", profile.torch.variant}:
        raise NoSolutionError(
            f"it offers torch {torch.version}, wanted {profile.torch.variant}",
            reference="wrong-variant",
        )


def _forbidden(profile: Profile, lock: Lock) -> dict[str, str]:
    """Return the packages that must not be there, each with the glob that names it."""
    return {
        wheel.name: glob
        for wheel in lock.wheels
        for glob in profile.packages.forbid
        if fnmatch(wheel.name, glob)
    }


def _forbidden_error(
    forbidden: Mapping[str, str], parents: Parents, requirements: Sequence[str]
) -> NoSolutionError:
    named = ", ".join(f"{name} ({glob})" for name, glob in forbidden.items())
    known = (chains.told(chains.chain_of(name, parents), requirements) for name in forbidden)
    how = "".join(f"; {words}" for words in known if words)
    return NoSolutionError(
        f"it brings packages that packages.forbid names: {named}{how}",
        reference="forbidden-package",
    )


def _exhausted(
    plan: BuildPlan, left_out: Sequence[tuple[str, str]], failures: Sequence[EnvdoctorError]
) -> EnvdoctorError:
    """Return the error that tells most: a source that answered says more than one that did not."""
    met = {type(failure) for failure in failures}
    kind = next((kind for kind in _REFERENCES if kind in met), SourceError)
    torch = plan.profile.torch
    wanted = f"profile {plan.profile.name} (torch {torch.version} {torch.variant})"
    lines = [f"no source has a set of packages for {wanted}:"]
    lines += [f"  {mask(source)}: {reason}" for source, reason in left_out]
    hint = "give a folder of wheels with --wheels DIR, or write a mirror's URL into the profile"
    if plan.is_offline:
        lines[0] = f"offline, and what is here has no set of packages for {wanted}:"
        hint = "build once without --offline, or bring wheels in: envdoctor wheelhouse import"
        return SourceError("\n".join(lines), reference="offline-and-missing", hint=hint)
    if plan.constraints and kind is NoSolutionError:
        lines += [f"  pip's constraints hold here: {', '.join(plan.constraints)}"]
        hint += '; if a constraint is in the way, set PIP_CONSTRAINT= or pip_config = "ignore"'
    own = dict.fromkeys(failure.hint for failure in failures if failure.hint)
    return kind("\n".join(lines), reference=_REFERENCES[kind], hint="; ".join([*own, hint]))
