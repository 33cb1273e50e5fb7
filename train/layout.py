"""Which processes and threads a run is spread over, and why a layout is refused; no torch."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from train.settings import ConfigError

PositiveInt = Annotated[int, msgspec.Meta(ge=1)]

THREAD_LOCAL_SINCE = (2, 14)
"""First torch release in which the flag of an FX trace belongs to its thread."""


class LayoutConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Over which processes the work is spread; today one process does it all."""

    mode: Literal["inline", "processes", "threads"] = "inline"
    """`inline`: one process holds target and drafter. `processes`: one process for each GPU, which
    is not there yet. `threads`: one process drives several GPUs, which is refused."""
    targets: PositiveInt = 1
    """GPUs that run the target."""
    drafters: PositiveInt = 1
    """GPUs that train the drafter."""


def contradictions(layout: LayoutConfig) -> list[str]:
    """Return one line for each number that does not fit the mode."""
    if layout.mode != "inline":
        return []
    return [
        f"layout.{key}: found {value}, wanted 1 with layout.mode inline"
        for key, value in (("targets", layout.targets), ("drafters", layout.drafters))
        if value != 1
    ]


def check_layout(layout: LayoutConfig, *, torch_version: str) -> None:
    """Refuse a layout that cannot be run, or not safely.

    Args:
        layout: What the run file asks for.
        torch_version: Of the environment that is to run it; empty if nobody knows.

    Raises:
        ConfigError: It is refused, with the reason in one line.
    """
    if reason := refusal(layout, torch_version):
        raise ConfigError([reason])


def refusal(layout: LayoutConfig, torch_version: str) -> str | None:
    """Return why a run is not started with this layout, in one line; None if it may.

    Args:
        layout: What the run file asks for.
        torch_version: Of the environment that is to run it; empty if nobody knows.
    """
    if layout.mode == "inline":
        return None
    if layout.mode == "processes":
        return (
            "layout.mode: found processes, which is not there yet: it needs the many-GPU layouts; "
            "wanted inline"
        )
    if torch_version and release(torch_version) >= THREAD_LOCAL_SINCE:
        return (
            "layout.mode: found threads, which is not supported: one process for each GPU does the "
            "same without sharing a compiler; wanted inline"
        )
    name = f"torch {torch_version}" if torch_version else "torch before 2.14"
    return (
        f"layout.mode: found threads, refused: {name} keeps one flag for the FX traces of all "
        "threads and looks at it in every compiled call, so drafters in threads fail while another "
        "one traces, run attention dense where that error is switched off, and can deadlock on a "
        "cold start; no cache and no warm-up cures it (envdoctor explain fx-tracing-race); "
        "wanted inline"
    )


def release(torch_version: str) -> tuple[int, ...]:
    """Return the release's first two numbers: (2, 11) of 2.11.0+cu130."""
    return tuple(int(part) for part in re.findall(r"\d+", torch_version.partition("+")[0])[:2])
