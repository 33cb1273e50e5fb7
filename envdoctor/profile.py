"""Profiles: what an environment is to hold, written by hand as TOML."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from envdoctor import inheritance
from envdoctor.errors import UsageError, UserFileError
from envdoctor.profile_rules import contradictions
from envdoctor.resources import bundled, trainer_module

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA_VERSION = 1


def _words(pattern: str, description: str) -> msgspec.Meta:
    return msgspec.Meta(pattern=pattern, extra_json_schema={"description": description})


Name = Annotated[
    str,
    _words(r"\A[a-z0-9][a-z0-9_-]*\Z", "small letters, digits, '-' and '_', such as 'cu128'"),
]
Release = Annotated[str, _words(r"\A\d+(\.\d+)+\Z", "a full version such as '2.10.0'")]
Variant = Annotated[
    str, _words(r"\A(cpu|cu\d{3})\Z", "'cpu', or 'cu' with three digits as in 'cu128'")
]
Arch = Annotated[str, _words(r"\Asm_\d+[af]?\Z", "a GPU architecture such as 'sm_90'")]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class PythonSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The interpreter."""

    requires: Text = ">=3.11"
    """Version specifier (PEP 440)."""


class TorchSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The build of torch."""

    version: Release
    """Exact version, without the local tag."""
    variant: Variant
    """`cpu`, or `cu` and the CUDA version without its dot; held against `torch/version.py`."""
    arch: tuple[Arch, ...] = ()
    """GPU architectures that the build must hold."""


class IndexSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A package index; the order of the sections is the order in which torch is looked for."""

    name: Name
    """Names it in messages and in the receipt."""
    url: str = ""
    """Simple index; only the default index may leave it out, which means PyPI. `${NAME}` stands for
    the value of an environment variable, such as a token before the host."""
    packages: tuple[Text, ...] = ()
    """Packages that are taken from here; for all other indexes than the default."""
    default: bool = False
    """True for the index of all other packages."""
    same_variant: dict[str, tuple[Release, ...]] = {}
    """Versions, by package, whose plain wheels here are of the profile's variant."""


class SourcesSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where packages come from besides the indexes."""

    pip_config: Literal["inherit", "ignore"] = "inherit"
    """Whether pip's indexes, find-links, constraints and certificate are used."""
    wheelhouse: tuple[Text, ...] = ()
    """Folders of wheels, tried before any index; relative to the profile's file."""
    exclude_newer: str = ""
    """RFC 3339 time: files uploaded later are left out, so that two builds resolve alike."""


class PackagesSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Packages besides torch."""

    require: tuple[Text, ...] = ()
    """Requirements (PEP 508)."""
    forbid: tuple[Text, ...] = ()
    """Globs over normalised names that must not be installed."""
    exclude: tuple[Text, ...] = ()
    """Packages left out although something requires them."""


class LibrariesSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shared libraries of what is built."""

    require: tuple[Text, ...] = ()
    """Sonames that must load once the modules are imported, such as `libcudnn.so.9`."""
    forbid_outside_env: tuple[Text, ...] = (
        "libcublas",
        "libcudart",
        "libcudnn",
        "libcusparse",
        "libnccl",
    )
    """Beginnings of names that must not be loaded from outside of the environment."""


class VariablesSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Environment variables of what runs in the environment."""

    set: dict[str, str] = {}
    """Variables to set."""
    forbid: tuple[Text, ...] = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
    """Variables to drop."""


class GpuSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The GPU side."""

    driver_min: Release | None = None
    """Lowest NVIDIA driver; unset asks for none."""


class IgnoredProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A problem that is known and shall not count."""

    id: Text
    """Id of the check that reports it."""
    reason: Text
    """Why it does not count; it stands in the report."""
    culprit: Text = "*"
    """Glob over the culprits that are meant."""


class CheckSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a build must show before it is put in place, and what `envdoctor check` overlooks."""

    imports: tuple[Text, ...] = ("torch",)
    """Modules that must import."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1)] = 300
    """Time for all the imports."""
    ignore: tuple[IgnoredProblem, ...] = ()
    """Problems that do not count; one that is not there is reported."""


class BuildSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the environment is put on disk."""

    link_mode: Literal["copy", "clone", "hardlink"] = "copy"
    """How files come out of uv's cache; a hardlinked file is one with the cache's, so an edit
    in the environment spreads."""
    keep: Annotated[int, msgspec.Meta(ge=2)] = 2
    """Generations kept, the current one included."""
    disk_gb: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """Gigabytes of the finished environment; 0 skips the check for space."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One profile."""

    schema: Literal[1]
    name: Name
    """Names the environment's folder."""
    description: str = ""
    extends: str = ""
    """Bundled profile by name, or path of a file, on which this one is laid; see `inheritance`."""
    python: PythonSection = PythonSection()
    torch: TorchSection
    index: tuple[IndexSection, ...] = ()
    sources: SourcesSection = SourcesSection()
    packages: PackagesSection = PackagesSection()
    libraries: LibrariesSection = LibrariesSection()
    env: VariablesSection = VariablesSection()
    gpu: GpuSection = GpuSection()
    check: CheckSection = CheckSection()
    build: BuildSection = BuildSection()


def known_names() -> list[str]:
    """Return the names of the bundled profiles."""
    return sorted(path.stem for path in bundled("profiles").glob("*.toml"))


def load_profile(name_or_path: str) -> Profile:
    """Load a profile.

    Args:
        name_or_path: Name of a bundled profile, or path of a TOML file.

    Raises:
        UsageError: No bundled profile has the name.
        UserFileError: The file cannot be read or is no valid profile; one line for each problem.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return _load_file(Path(name_or_path))
    known = known_names()
    if name_or_path not in known:
        nearest = difflib.get_close_matches(name_or_path, known, n=1)
        guess = f"did you mean {nearest[0]}? " if nearest else ""
        raise UsageError(
            f"no profile is named {name_or_path!r}",
            reference="profile-not-found",
            hint=f"{guess}known profiles: {', '.join(known)}; a path to a TOML file works as well",
        )
    return _load_file(bundled("profiles") / f"{name_or_path}.toml")


def reference(name_or_path: str) -> str:
    """Return what names a profile wherever one stands: a path made absolute, or the name."""
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return str(Path(name_or_path).absolute())
    return name_or_path


def with_requirements(profile: Profile, requirements: Sequence[str]) -> Profile:
    """Return a profile that requires more; what it pins stays pinned.

    Raises:
        UsageError: One is no requirement, or asks for what a profile says elsewhere.
    """
    packages = msgspec.structs.replace(
        profile.packages, require=(*profile.packages.require, *requirements)
    )
    found = msgspec.structs.replace(profile, packages=packages)
    problems = contradictions(found)
    if problems:
        lines = "\n".join(f"--with: {problem}" for problem in problems)
        raise UsageError(lines, reference="requirement-not-valid")
    return found


def digest(profile: Profile) -> str:
    """Return the sha256 of a profile's content, whatever its file looks like."""
    return hashlib.sha256(msgspec.json.encode(profile, order="deterministic")).hexdigest()


def _load_file(path: Path) -> Profile:
    parent = inheritance.parent_of(path)
    raw = inheritance.read(path)
    if parent is not None:
        _load_file(parent)  # what is wrong there is said of that file
    found: list[str] = trainer_module("settings").problems_of(raw, Profile)
    if not found:
        profile = msgspec.convert(raw, Profile)
        found = contradictions(profile)
        if not found:
            return profile
    lines = "\n".join(f"{path}: {problem}" for problem in found)
    raise UserFileError(lines, reference="profile-not-valid")
