"""What ends a run that is no bug: one line for the user, and the exit code."""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.attention import UnfusedAttentionError
from train.checkpoint import CheckpointError
from train.compile_watch import RecompiledError
from train.durable import NO_SPACE
from train.exit_codes import ExitCode
from train.ledger import NotFiniteError
from train.saver import SaveError
from train.selftest import SelfTestError

if TYPE_CHECKING:
    from pathlib import Path

SELF_TEST_FAILURES = (SelfTestError, UnfusedAttentionError, RecompiledError, CheckpointError)
"""What is raised when something does not hold that a training relies on."""
SMALLER = "train.num_anchors or train.cache_features_bytes, or train.micro_batch of a new run"


@dataclass(frozen=True)
class Failure:
    """How a run ended.

    Attributes:
        line: What happened, and how to go on.
        exit_code: As the README lists them.
        shows_traceback: Whether that would help to find the cause.
    """

    line: str
    exit_code: ExitCode
    shows_traceback: bool = False


def failure_of(error: Exception, run: Path | None = None) -> Failure | None:
    """Return what an error means to the user; None for a bug.

    Args:
        error: What ended the work.
        run: The run's folder, to go on with; None where there is none.
    """
    failure = None
    match error:
        case _ if isinstance(error, SELF_TEST_FAILURES):
            failure = Failure(f"self-test failed: {error}", ExitCode.PROBLEM)
        case NotFiniteError():
            lower = f"--resume {run} --set train.peak_lr=LOWER goes on"
            failure = Failure(f"the training went astray: {error}; {lower}", ExitCode.PROBLEM)
        case _ if is_out_of_memory(error):
            line = f"{out_of_memory_line(str(error))}{_goes_on(run)}"
            failure = Failure(line, ExitCode.PROBLEM)
        case torch.AcceleratorError():
            line = f"{failed_line(str(error))}{_goes_on(run, ' from its newest checkpoint')}"
            failure = Failure(line, ExitCode.INTERNAL, shows_traceback=True)
        case SaveError():
            failure = Failure(f"{error}{_goes_on(run, ' from there')}", ExitCode.SPACE)
        case OSError() if error.errno in NO_SPACE:
            line = f"{error}{_goes_on(run, ' once there is space')}"
            failure = Failure(line, ExitCode.SPACE)
    return failure


def _goes_on(run: Path | None, how: str = "") -> str:
    return f"; --resume {run} goes on{how}" if run else ""


def told(error: Exception, run: Path | None = None) -> ExitCode:
    """Say what an error means to the user, and return the exit code.

    Args:
        error: What ended the work; raised again where it is a bug.
        run: As for `failure_of`.
    """
    failure = failure_of(error, run)
    if failure is None:
        raise error
    if failure.shows_traceback:
        traceback.print_exception(error)
    sys.stderr.write(f"error: {failure.line}\n")
    return failure.exit_code


def is_out_of_memory(error: Exception) -> bool:
    """Return whether a device has no room for a tensor; for the CPU torch has no error of its own.

    What wants more bytes than a number can count is refused before anything is allocated.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("DefaultCPUAllocator:", "Storage size calculation overflowed")
    return isinstance(error, RuntimeError) and any(one in str(error) for one in words)


def out_of_memory_line(message: str) -> str:
    """Return what was wanted and what there was, and what to lower.

    Args:
        message: torch's own, which for a GPU names every process on it.
    """
    wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", message)
    there = re.search(r"capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free", message)
    others = re.findall(r"(Process \d+) has ([\d.]+ \w+) memory in use", message)
    found = [f"wanted {wanted[1]} more"] if wanted else []
    found += [f"found {there[2]} free of {there[1]}"] if there else []
    found += [f"{process} holds {size}" for process, size in others]
    if on_cpu := re.search(r"DefaultCPUAllocator: .* allocate (\d+) bytes", message):
        found = [f"wanted {int(on_cpu[1]) / 2**30:,.1f} GiB more"]
    told = ", ".join(found) or message.partition("\n")[0] or "Python had no more"
    where = "the GPU's memory" if "CUDA" in message or "HIP" in message else "memory"
    return f"out of {where}: {told}; lower {SMALLER}"


def failed_line(message: str) -> str:
    """Return what the GPU reported, and where the cause is noted.

    Args:
        message: torch's own; its first line says what happened.
    """
    reported = message.partition("\n")[0].removeprefix("CUDA error: ")
    return f"the GPU reported {reported!r}; an Xid in the kernel's log (dmesg) says why"
