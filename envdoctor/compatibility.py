"""Compatibility data, loaded from the tables beside this module; every row has source and date."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class LeftOverVariable:
    """A variable that slows or changes a run, set while somebody looked for a fault."""

    name: str
    values: tuple[str, ...]
    severity: str
    effect: str


@dataclass(frozen=True, slots=True)
class Stray:
    """A package that does not belong in a training environment."""

    name: str
    modules: tuple[str, ...]
    why: str


@cache
def minimum_drivers() -> dict[int, str]:
    """Return the lowest driver version by CUDA major release."""
    return {row["cuda_major"]: row["driver"] for row in load_table("cuda_driver")["minimum"]}


@cache
def ptxas_releases() -> dict[str, str]:
    """Return the first CUDA release whose ptxas knows each compute capability."""
    return {row["capability"]: row["cuda"] for row in load_table("ptxas")["capability"]}


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


def load_table(name: str) -> dict[str, list[dict[str, Any]]]:
    """Read one table as it stands on disk."""
    return tomllib.loads((files("envdoctor") / "tables" / f"{name}.toml").read_text("utf-8"))
