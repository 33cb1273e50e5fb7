"""Readings of programs that ran in the inspected interpreter, as `--probe` allows."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class ProbeRun:
    """How a program ended.

    Args:
        status: `crashed` means that a signal ended it.
        seconds: How long it ran.
        reason: Why it was skipped, what it raised, or the signal's name; empty if it passed.
        step: What it was about to do when it ended; empty if it passed.
        log: What it wrote to standard error, from where a crash was told of, else its end; empty if
            it passed.
    """

    status: Literal["not_run", "skipped", "passed", "failed", "crashed", "timed_out"] = "not_run"
    seconds: float = 0.0
    reason: str = "nothing of the environment is run without --probe"
    step: str = ""
    log: str = ""


@keyword_value
class LoadedLibrary:
    """A library that a process had loaded.

    Args:
        name: SONAME by which it was predicted; the file's name if nothing predicted it.
        path: The file, symbolic links resolved.
        predicted: Where the static reading expects it; empty if it says nothing.
    """

    name: str
    path: str
    predicted: str = ""


@keyword_value
class ImportProbeFact(Fact):
    """`import torch`, and what the process held afterwards.

    Args:
        run: How it ended.
        import_seconds: Of the import alone.
        torch: Its version.
        cuda: Its CUDA version; None for a build without.
        cuda_available: What `torch.cuda.is_available()` says.
        num_devices: GPUs that torch sees.
        cuda_error: What torch said when CUDA did not start.
        cudnn: Version of cuDNN as a number; empty if torch has none.
        cudnn_error: What torch said when cuDNN did not fit.
        nccl: Version of NCCL.
        driver_code: Result of `cuInit`; None if there was no libcuda.
        driver_name: The name that CUDA gives it.
        driver_devices: GPUs that the driver lists.
        runtime_code: Result of the first call into the CUDA runtime; None without one.
        runtime_name: The name that CUDA gives it.
        libraries: The libraries of torch and NVIDIA that were loaded.
    """

    run: ProbeRun = field(default_factory=ProbeRun)
    import_seconds: float = 0.0
    torch: str = ""
    cuda: str | None = None
    cuda_available: bool = False
    num_devices: int = 0
    cuda_error: str = ""
    cudnn: str = ""
    cudnn_error: str = ""
    nccl: str = ""
    driver_code: int | None = None
    driver_name: str = ""
    driver_devices: int = 0
    runtime_code: int | None = None
    runtime_name: str = ""
    libraries: tuple[LoadedLibrary, ...] = ()


@keyword_value
class Operation:
    """One computation on one device.

    Args:
        device: Such as `cuda:0`.
        name: What was computed.
        status: How it went.
        reason: Why it was skipped, or what it raised.
        distance: How far the result is off, relative to the exact one's norm; None if it is not
            finite, or there is none.
        seconds: How long it took, first use included.
    """

    device: str
    name: str
    status: Literal["passed", "failed", "skipped"]
    reason: str = ""
    distance: float | None = None
    seconds: float = 0.0


@keyword_value
class ComputeProbeFact(Fact):
    """Computations on every GPU, and the libraries that were loaded for them."""

    run: ProbeRun = field(default_factory=ProbeRun)
    operations: tuple[Operation, ...] = ()
    libraries: tuple[LoadedLibrary, ...] = ()


@keyword_value
class AllReduceProbeFact(Fact):
    """A sum over all GPUs through NCCL, one process for each."""

    run: ProbeRun = field(default_factory=ProbeRun)
    num_ranks: int = 0
    reduce_seconds: float = 0.0


@keyword_value
class AttentionCase:
    """Compiled attention at one length.

    Args:
        length: Positions.
        distance: How far output and gradients are off dense attention, relative to its norm; None
            if they are not finite.
        seconds: Of the first run, compiling included.
        peak_bytes: Memory that the second run took; None on the CPU.
        scores_bytes: Memory of all scores, which only the fused kernel does without.
    """

    length: int
    distance: float | None
    seconds: float
    peak_bytes: int | None
    scores_bytes: int


@keyword_value
class AttentionProbeFact(Fact):
    """Compiled flex_attention, forward and backward, against dense attention."""

    run: ProbeRun = field(default_factory=ProbeRun)
    device: str = ""
    dtype: str = ""
    cases: tuple[AttentionCase, ...] = ()


PATCHED_ERROR = "module is not installed as a submodule"
"""What a call raises while another thread traces, because that has patched all modules."""

RACE_ERRORS = (
    "Detected that you are using FX",
    "FX to symbolically trace a dynamo-optimized function",
    PATCHED_ERROR,
)
"""What a compiled call raises while another thread traces. A console may break the line of the
first, which then lacks the second."""

RACE_REMEDIES = ("none", "lock", "processes")
"""What is tried against threads that disturb each other's compiled calls."""


@keyword_value
class RaceCase:
    """Workers of which one compiles or traces while others call compiled functions.

    Args:
        scenario: What the one does: the first backward pass of new functions, tracing, or all of
            them compile attention from a cold start.
        remedy: Nothing, one lock over every compiled call, or a process for each worker.
        num_calls: Compiled calls of the others.
        num_failed: Those of them that raised.
        num_units: What the one got done meanwhile.
        num_failed_units: Those of them that raised.
        num_hung: Workers that did not end.
        error: What the first failing worker raised last; empty if none did.
    """

    scenario: Literal["backward", "tracing", "cold"]
    remedy: Literal["none", "lock", "processes"]
    num_calls: int
    num_failed: int
    num_units: int
    num_failed_units: int
    num_hung: int
    error: str


@keyword_value
class RaceProbeFact(Fact):
    """The FX-tracing race, provoked without and with remedies."""

    run: ProbeRun = field(default_factory=ProbeRun)
    cases: tuple[RaceCase, ...] = ()
