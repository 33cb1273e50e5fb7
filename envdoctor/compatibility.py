"""Compatibility data, loaded from the tables beside this module; every row has source and date."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from envdoctor.value import keyword_value, value

# importlib.resources would do as well, but imports zipfile, which costs 10 ms.
_TABLES = Path(__file__).parent / "tables"


@value
class LeftOverVariable:
    """A variable that slows or changes a run, set while somebody looked for a fault."""

    name: str
    values: tuple[str, ...]
    severity: str
    effect: str


@value
class Stray:
    """A package that does not belong in a training environment."""

    name: str
    modules: tuple[str, ...]
    why: str


@keyword_value
class NvidiaLibrary:
    """Where an NVIDIA package puts its libraries, and where those state their version.

    Args:
        package: The package's name without its CUDA suffix.
        folders: Folders below the package folder, one for each layout.
        libraries: Globs over file names, each of which must be met.
        companions: Files that must lie beside `companions_of`, which opens them by name.
        companions_of: The library that opens them.
        header: Header below the folder; empty if none states the version.
        macros: Its defines, most significant first.
        packed: Its one define that holds major * 1000 + minor * 10.
        mark: What precedes the version in the library itself.
    """

    package: str
    folders: tuple[str, ...]
    libraries: tuple[str, ...]
    companions: tuple[str, ...] = ()
    companions_of: str = ""
    header: str = ""
    macros: tuple[str, ...] = ()
    packed: str = ""
    mark: str = ""

    def is_package(self, name: str) -> bool:
        """Tell whether a normalised name is the package's, for whatever CUDA."""
        return name == self.package or name.startswith(f"{self.package}-cu")

    def is_one(self, name: str) -> bool:
        """Tell whether a file name is one of its libraries."""
        return any(fnmatchcase(name, glob) for glob in self.libraries)


@cache
def nvidia_libraries() -> tuple[NvidiaLibrary, ...]:
    """Return where each NVIDIA package that torch uses puts its libraries."""
    return tuple(
        NvidiaLibrary(
            package=row["package"],
            folders=tuple(row["folders"]),
            libraries=tuple(row["libraries"]),
            companions=tuple(row.get("companions", ())),
            companions_of=row.get("companions_of", ""),
            header=row.get("header", ""),
            macros=tuple(row.get("macros", ())),
            packed=row.get("packed", ""),
            mark=row.get("mark", ""),
        )
        for row in load_table("nvidia_libraries")["library"]
    )


@cache
def minimum_drivers() -> dict[int, str]:
    """Return the lowest driver version by CUDA major release."""
    return {row["cuda_major"]: row["driver"] for row in load_table("cuda_driver")["minimum"]}


@cache
def ptxas_releases() -> dict[str, str]:
    """Return the first CUDA release whose ptxas knows each compute capability."""
    return {row["capability"]: row["cuda"] for row in load_table("ptxas")["capability"]}


@cache
def official_arch(cuda: str, torch: tuple[int, ...]) -> tuple[str, ...]:
    """Return the GPU architectures in the official wheel of a torch release; empty if unknown.

    Args:
        cuda: CUDA version of the build, such as `12.8`.
        torch: Release as numbers, such as (2, 10, 0).
    """
    found: tuple[str, ...] = ()
    for row in load_table("torch_arch")["build"]:  # rows of one CUDA version are in release order
        since = tuple(map(int, row["since"].split(".")))
        if row["cuda"] == cuda and torch >= since:
            found = tuple(row["arch"])
    return found


@cache
def left_over_variables() -> tuple[LeftOverVariable, ...]:
    """Return the variables that people forget to unset, with what they do."""
    return tuple(
        LeftOverVariable(row["name"], tuple(row["values"]), row["severity"], row["effect"])
        for row in load_table("left_over_variables")["variable"]
    )


@cache
def strays() -> tuple[Stray, ...]:
    """Return the bundled list of packages that do not belong in a training environment."""
    rows = load_table("strays")["stray"]
    return tuple(Stray(row["name"], tuple(row["modules"]), row["why"]) for row in rows)


@cache
def kept_packages() -> frozenset[str]:
    """Return the packages that training uses, whoever asked for them."""
    return frozenset(name for row in load_table("strays")["keep"] for name in row["names"])


@cache
def companion_versions() -> dict[str, dict[str, str]]:
    """Return the versions of torchvision and torchaudio by torch version, without local tags."""
    rows = load_table("torch_companions")["pair"]
    names = ("torchvision", "torchaudio")
    return {row["torch"]: {name: row[name] for name in names} for row in rows}


@cache
def default_variants() -> dict[str, str]:
    """Return the CUDA variant that a torch release has by default, by its minor version."""
    return {row["torch"]: row["variant"] for row in load_table("torch_companions")["variant"]}


def package_of_library(soname: str) -> str:
    """Return the package, without its CUDA suffix, that ships a library; empty if none is known."""
    rows = _cuda_libraries()
    # `libcusparseLt` begins like `libcusparse`: the longer name is meant
    return next((package for library, package in rows if soname.startswith(library)), "")


@cache
def _cuda_libraries() -> tuple[tuple[str, str], ...]:
    rows = load_table("cuda_libraries")["library"]
    pairs = [(row["library"], row["package"]) for row in rows]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


@cache
def cudnn_parts() -> dict[str, str]:
    """Return the first cuDNN version that opens a part which its package may lack, by its name."""
    return {row["part"]: row["since"] for row in load_table("cuda_libraries")["cudnn_part"]}


@cache
def cuda_runtime_users() -> dict[str, str]:
    """Return the packages that look for a CUDA runtime by name, as globs, the best known first.

    Returns:
        By glob: the first version that does not stop if there are two; empty if unknown.
    """
    rows = load_table("cuda_libraries")["runtime_user"]
    return {row["package"]: row["stops_before"] for row in rows}


def load_table(name: str) -> dict[str, list[dict[str, Any]]]:
    """Read one table as it stands on disk."""
    return tomllib.loads((_TABLES / f"{name}.toml").read_text("utf-8"))
