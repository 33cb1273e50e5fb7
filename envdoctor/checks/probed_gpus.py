"""Checks of what was computed on the GPUs (`--probe`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.checks.endings import evidence_of, how_it_ended, not_judged
from envdoctor.checks.probes import WRONG_LIBRARIES
from envdoctor.facts import AllReduceProbeFact, AttentionProbeFact, ComputeProbeFact, Operation
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Skipped, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOO_FAR = 0.02
"""Relative error. Rounding to half precision gives 2e-4 for the products, to bfloat16 4e-3 for
attention (measured on the CPU, 2026-11-29)."""

_SHARE_OF_SCORES = 0.25
"""Of the memory that all scores take. Inputs, output and gradients take 0.06 of it; attention that
holds the scores takes at least all of it."""

_MIB = 1024**2


@check(
    requires=["torch-import-fails"],
    follows_from=[*WRONG_LIBRARIES, "cudnn-refused-by-torch", "gpu-arch-not-in-build"],
)
def gpu_computation_fails(probe: ComputeProbeFact) -> Verdict:
    """A basic computation fails or is wrong on a GPU.

    ## What it checks
    With `--probe`, on each GPU that torch sees: a matrix product (cuBLAS), a convolution forward
    and backward (cuDNN) and a 2:4 sparse product (cuSPARSELt), against the same on the CPU.

    ## Why it matters
    These open the libraries that `import torch` leaves alone, cuDNN's sub-libraries among them. A
    wrong result on one GPU of several points at the hardware.

    ## Remedy
    If it fails on all GPUs, the library that it stands for; if on one, that GPU (`dmesg`, NVIDIA
    Xid errors).

    ## Source
    Tolerance: rounding of half precision, measured; NVIDIA, "XID Errors".
    """
    if verdict := not_judged(probe.run):
        return verdict
    if probe.run.status != "passed":
        return Problem(
            culprit=probe.run.step or "GPU",
            message=f"computing on the GPUs {how_it_ended(probe.run)}",
            evidence=tuple(evidence_of(probe.run)),
            remedy=_remedy_of_computation(),
        )
    done = [item for item in probe.operations if item.status == "passed"]
    return problems(
        list(_wrong_operations(probe)), otherwise=Ok(f"{len(done)} computations are right")
    )


def _wrong_operations(probe: ComputeProbeFact) -> Iterator[Problem]:
    """Yield one problem for each computation, with the devices on which it goes wrong.

    After an error on a device the next ones on it fail as well, so the first one speaks for it.
    """
    first: dict[str, Operation] = {}
    for item in probe.operations:
        if _is_wrong(item):
            first.setdefault(item.device, item)
    for name in dict.fromkeys(item.name for item in first.values()):
        group = [item for item in first.values() if item.name == name]
        devices = ", ".join(item.device for item in group)
        yield Problem(
            culprit=f"{name} on {devices}",
            message=f"{name} on {devices}: {_what_is_wrong(group[0])}",
            evidence=tuple(
                Evidence(subject=item.device, expected="a right result", found=_what_is_wrong(item))
                for item in group
            ),
            remedy=_remedy_of_computation(),
        )


def _is_wrong(item: Operation) -> bool:
    if item.status == "passed":
        return item.distance is None or item.distance > _TOO_FAR
    return item.status == "failed"


def _what_is_wrong(item: Operation) -> str:
    if item.status == "failed":
        return item.reason.partition("\n")[0]
    return _off(item.distance)


def _off(distance: float | None) -> str:
    return (
        "the result is not finite" if distance is None else f"the result is off by {distance:.2g}"
    )


def _remedy_of_computation() -> Remedy:
    return Remedy(
        kind="reinstall-package",
        text="Compare every byte of the CUDA packages with their RECORD; if they are whole and one "
        "GPU alone fails, have that GPU tested.",
        commands=("envdoctor check --deep",),
    )


@check(
    requires=["torch-import-fails"],
    follows_from=[
        *WRONG_LIBRARIES,
        "gpu-computation-fails",
        "network-interface-not-found",
        "rdma-device-not-found",
        "shared-memory-too-small",
    ],
)
def gpu_all_reduce_fails(probe: AllReduceProbeFact) -> Verdict:
    """Summing over all GPUs through NCCL fails or hangs.

    ## What it checks
    With `--probe`: one process for each GPU that torch sees sums 4 MiB with the others, within a
    deadline.

    ## Why it matters
    Training on several GPUs starts with this. It fails for reasons that one GPU does not show: no
    usable network interface, too little /dev/shm, peer access that the platform forbids, a net
    plugin that does not fit; and it often hangs in place of failing.

    ## Remedy
    Read NCCL's own warning in the evidence. Unset left-over NCCL_* variables first; then try
    `NCCL_P2P_DISABLE=1` to tell peer access from the rest.

    ## Source
    NVIDIA NCCL user guide, "Troubleshooting"; huggingface/accelerate#1209; NVIDIA/nccl#606.
    """
    if verdict := not_judged(probe.run):
        return verdict
    if probe.run.status == "passed":
        return Ok(f"{probe.num_ranks} ranks agree after {probe.reduce_seconds:.1f} s")
    return Problem(
        culprit="NCCL",
        message=f"the sum over all GPUs {how_it_ended(probe.run)}",
        evidence=tuple(evidence_of(probe.run)),
        remedy=Remedy(
            kind="config-change",
            text="Unset left-over NCCL_* variables; then NCCL_DEBUG=INFO tells what it tried.",
        ),
    )


@check(
    requires=["torch-import-fails"],
    follows_from=[
        "gpu-computation-fails",
        "package-files-damaged",
        "package-version-not-pinned",
        "no-c-compiler",
        "python-headers-missing",
        "ptxas-too-old",
        "ptxas-not-executable",
    ],
)
def compiled_attention_fails(probe: AttentionProbeFact) -> Verdict:
    """Compiled flex_attention fails or is wrong.

    ## What it checks
    With `--probe`, on the first GPU: `torch.compile(flex_attention)` with a causal block mask,
    forward and backward at two lengths, against dense attention in float32. Compilers write to a
    private cache, so this is a cold start.

    ## Why it matters
    It needs all that compiling needs (C compiler, Python.h, Triton with its ptxas, a cache that can
    be written), and is what training spends its time in.

    ## Remedy
    The last line of the error names the tool or file.

    ## Source
    Tolerance: rounding of bfloat16, measured; torch/_inductor/kernel/flex of torch 2.9.1 to 2.15.0.
    """
    if verdict := not_judged(probe.run):
        return verdict
    if probe.run.status != "passed":
        return Problem(
            culprit="torch.compile",
            message=f"compiled attention {how_it_ended(probe.run)}",
            evidence=tuple(evidence_of(probe.run)),
            remedy=Remedy(
                kind="config-change", text="Provide what the last line of the error names."
            ),
        )
    wrong = [item for item in probe.cases if item.distance is None or item.distance > _TOO_FAR]
    if not wrong:
        lengths = " and ".join(str(item.length) for item in probe.cases)
        return Ok(f"right at {lengths} positions in {probe.dtype}")
    return Problem(
        culprit="flex_attention",
        message=f"compiled attention over {wrong[0].length} positions: {_off(wrong[0].distance)}",
        evidence=tuple(
            Evidence(subject=f"{item.length} positions", expected=f"<= {_TOO_FAR}", found=text)
            for item in wrong
            for text in [_off(item.distance)]
        ),
        remedy=Remedy(
            kind="install-matching-wheel", text="Build the environment with another torch release."
        ),
    )


@check(requires=["compiled-attention-fails"])
def compiled_attention_not_fused(probe: AttentionProbeFact) -> Verdict:
    """Compiled flex_attention holds all scores in memory.

    ## What it checks
    With `--probe`: the peak memory of a forward and backward pass, against the memory of the scores
    of all pairs of positions, which only the fused kernel does without.

    ## Why it matters
    Its results are right and its memory grows with the square of the length: training ends out of
    memory at lengths that should fit.

    ## Remedy
    Leave `torch._dynamo.config` and `TORCH_COMPILE_DISABLE` alone; see what turns compiling off.

    ## Source
    Without torch.compile flex_attention takes the dense path in every version from 2.9.1 to 2.15.0,
    read 2026-11-29.
    """
    if verdict := not_judged(probe.run):
        return verdict
    measured = [item for item in probe.cases if item.peak_bytes is not None]
    # At the shorter length what a kernel needs besides the scores weighs too much.
    longest = max(measured, key=lambda item: item.length, default=None)
    if longest is None or longest.peak_bytes is None:
        return Skipped("no memory was measured")
    peak, scores = longest.peak_bytes / _MIB, longest.scores_bytes / _MIB
    text = f"{peak:.0f} MiB at {longest.length} positions, where the scores take {scores:.0f} MiB"
    if peak <= _SHARE_OF_SCORES * scores:
        return Ok(text)
    return Problem(
        culprit="flex_attention",
        message=f"compiled attention takes {text}: it is not fused",
        evidence=(
            Evidence(
                subject="peak memory",
                expected=f"<= {_SHARE_OF_SCORES * scores:.0f} MiB",
                found=f"{peak:.0f} MiB",
            ),
        ),
        remedy=Remedy(
            kind="unset-env",
            text="Unset what turns compiling off: TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE.",
        ),
    )
