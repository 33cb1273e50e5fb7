"""Compatibility data, loaded from the tables beside this module; every row has source and date."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


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
def strays() -> tuple[Stray, ...]:
    """Return the bundled list of packages that do not belong in a training environment."""
    rows = load_table("strays")["stray"]
    return tuple(Stray(row["name"], tuple(row["modules"]), row["why"]) for row in rows)


def load_table(name: str) -> dict[str, list[dict[str, Any]]]:
    """Read one table as it stands on disk."""
    return tomllib.loads((files("envdoctor") / "tables" / f"{name}.toml").read_text("utf-8"))
