"""What ends a run that is no bug: one line for the user, and the exit code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from train.attention import UnfusedAttentionError
from train.checkpoint import CheckpointError
from train.compile_watch import RecompiledError
from train.durable import NO_SPACE
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
    exit_code: int
    shows_traceback: bool = False


def failure_of(error: Exception, run: Path) -> Failure | None:
    """Return what an error means to the user; None for a bug.

    Args:
        error: What `train.run.execute` raised.
        run: The run's folder.
    """
    resume = f"--resume {run} goes on"
    failure = None
    match error:
        case _ if isinstance(error, SELF_TEST_FAILURES):
            failure = Failure(f"self-test failed: {error}", 1)
        case NotFiniteError():
            lower = f"--resume {run} --set train.peak_lr=LOWER goes on"
            failure = Failure(f"the training went astray: {error}; {lower}", 1)
        case torch.OutOfMemoryError():
            failure = Failure(f"{out_of_memory_line(str(error))}; {resume}", 1)
        case torch.AcceleratorError():
            line = f"{failed_line(str(error))}; {resume} from its newest checkpoint"
            failure = Failure(line, 3, shows_traceback=True)
        case SaveError():
            failure = Failure(f"{error}; {resume} from there", 7)
        case OSError() if error.errno in NO_SPACE:
            failure = Failure(f"{error}; {resume} once there is space", 7)
    return failure


def out_of_memory_line(message: str) -> str:
    """Return what was wanted and what there was, and what to lower.

    Args:
        message: torch's own, which names every process on the GPU.
    """
    wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", message)
    there = re.search(r"capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free", message)
    others = re.findall(r"(Process \d+) has ([\d.]+ \w+) memory in use", message)
    found = [f"wanted {wanted[1]} more"] if wanted else []
    found += [f"found {there[2]} free of {there[1]}"] if there else []
    found += [f"{process} holds {size}" for process, size in others]
    told = ", ".join(found) or message.partition("\n")[0]
    return f"out of the GPU's memory: {told}; lower {SMALLER}"


def failed_line(message: str) -> str:
    """Return what the GPU reported, and where the cause is noted.

    Args:
        message: torch's own; its first line says what happened.
    """
    reported = message.partition("\n")[0].removeprefix("CUDA error: ")
    return f"the GPU reported {reported!r}; an Xid in the kernel's log (dmesg) says why"
