"""Checks of CUDA_VISIBLE_DEVICES against the GPUs and the engines that read it."""

from __future__ import annotations

from envdoctor.check import check
from envdoctor.facts import DistributionsFact, Gpu, NvidiaFact, VariablesFact
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict
from envdoctor.visible_devices import VARIABLE, VisibleDevices, visible_devices

_INTEGER_ENGINES = ("vllm",)
"""Engines that take the entries for integers, in all versions up to 0.33."""


@check(requires=["no-nvidia-driver"])
def visible_device_not_found(nvidia: NvidiaFact, variables: VariablesFact) -> Verdict:
    """CUDA_VISIBLE_DEVICES names a GPU that is not here.

    ## What it checks
    Each entry of CUDA_VISIBLE_DEVICES, an index or the UUID of a GPU or of a MIG slice, against
    the GPUs that NVML lists.

    ## Why it matters
    CUDA ignores the first entry it does not know and all that follow: torch sees fewer GPUs, or
    none, and says nothing of the variable.

    ## Remedy
    Unset the variable, or name GPUs of this machine; `nvidia-smi -L` lists their UUIDs.

    ## Source
    CUDA C++ Programming Guide, CUDA environment variables.
    """
    value = variables.get(VARIABLE)
    if value is None:
        return Ok(f"{VARIABLE} is not set")
    if not nvidia.gpus:
        return Skipped("NVML lists no GPU")
    seen = visible_devices(value, nvidia.gpus)
    if seen.hides_all:
        return _hides_all(value, nvidia)
    if not seen.unknown:
        return Ok(f"{VARIABLE}={value} names GPUs of this machine")
    return Problem(
        culprit=VARIABLE,
        severity=Severity.WARNING if seen.gpus else Severity.ERROR,
        message=f"{VARIABLE}={value}: {seen.unknown!r} is none of this machine's "
        f"{len(nvidia.gpus)} GPU(s), so CUDA sees {len(seen.gpus)}",
        evidence=(
            Evidence(subject=VARIABLE, expected=_names(nvidia), found=value),
            Evidence(subject="GPUs that CUDA sees", found=str(len(seen.gpus))),
        ),
        remedy=Remedy(
            kind="unset-env",
            text="Unset the variable, or name GPUs of this machine.",
            commands=(f"unset {VARIABLE}",),
        ),
    )


def _hides_all(value: str, nvidia: NvidiaFact) -> Problem:
    return Problem(
        culprit=VARIABLE,
        severity=Severity.INFO,
        message=f"{VARIABLE}={value!r} hides this machine's {len(nvidia.gpus)} GPU(s) from CUDA",
        evidence=(Evidence(subject=VARIABLE, found=repr(value)),),
        remedy=Remedy(
            kind="unset-env",
            text="If a GPU is wanted, unset the variable.",
            commands=(f"unset {VARIABLE}",),
        ),
    )


def _names(nvidia: NvidiaFact) -> str:
    highest = len(nvidia.gpus) - 1
    indexes = "0" if highest == 0 else f"0 to {highest}"
    return f"{indexes}, or UUIDs such as {nvidia.gpus[0].uuid or 'GPU-...'}"


@check(requires=["visible-device-not-found"])
def visible_devices_by_uuid(
    nvidia: NvidiaFact, variables: VariablesFact, installed: DistributionsFact
) -> Verdict:
    """CUDA_VISIBLE_DEVICES holds UUIDs, which an installed engine cannot read.

    ## What it checks
    UUIDs of GPUs or MIG slices in CUDA_VISIBLE_DEVICES where an engine is installed that takes the
    entries for integers (vLLM).

    ## Why it matters
    CUDA and torch accept the UUID; the engine stops converting it to an integer, often behind a
    message about the model. It may also take the whole GPU's memory for that of the slice.

    ## Remedy
    Name the GPU by its index. In a container that sees only the slice, the index is 0.

    ## Source
    vllm-project/vllm#41848; vllm-project/vllm#46132, open on 2026-11-29.
    """
    value = variables.get(VARIABLE)
    seen = visible_devices(value, nvidia.gpus)
    engines = [name for name in _INTEGER_ENGINES if installed.find(name)]
    if value is None or not seen.by_uuid or not engines:
        return Ok("no engine that takes UUIDs for integers meets one")
    engine = engines[0]
    indexes = ",".join(str(nvidia.gpus.index(gpu)) for gpu in _each_once(seen))
    is_slice = any(entry.upper().startswith("MIG-") for entry in seen.by_uuid)
    return Problem(
        culprit=VARIABLE,
        severity=Severity.WARNING,
        message=f"{VARIABLE}={value} holds a UUID; {engine} {installed.version_of(engine)} takes "
        "it for an integer and stops. CUDA and torch accept it",
        evidence=(
            Evidence(subject=VARIABLE, expected="indexes", found=value),
            Evidence(subject=engine, found=installed.version_of(engine)),
        ),
        remedy=Remedy(
            kind="set-env",
            text="Name the GPU by its index"
            + ("; in a container that sees only the slice it is 0." if is_slice else "."),
            commands=(f"export {VARIABLE}={indexes}",),
        ),
    )


def _each_once(seen: VisibleDevices) -> list[Gpu]:
    return list(dict.fromkeys(seen.gpus))


@check(requires=["no-nvidia-driver"])
def mig_mode_without_slices(nvidia: NvidiaFact) -> Verdict:
    """A GPU is in MIG mode and not divided, so CUDA cannot use it.

    ## What it checks
    GPUs whose MIG mode is on and for which NVML lists no MIG device.

    ## Why it matters
    A GPU in MIG mode serves programs only through its slices. Without any, CUDA does not list it:
    `nvidia-smi` shows a healthy GPU and torch says that there is none.

    ## Remedy
    The administrator creates slices, or turns MIG mode off.

    ## Source
    NVIDIA Multi-Instance GPU user guide, "Creating GPU instances".
    """
    if not nvidia.gpus:
        return Skipped("NVML lists no GPU")
    undivided = [gpu for gpu in nvidia.gpus if gpu.is_mig and gpu.mig_devices == ()]
    if not undivided:
        return Ok("no GPU is in MIG mode without slices")
    indexes = ", ".join(str(gpu.index) for gpu in undivided)
    return Problem(
        culprit=f"GPU {indexes}",
        owner="admin",
        severity=Severity.ERROR if len(undivided) == len(nvidia.gpus) else Severity.WARNING,
        message=f"GPU {indexes} is in MIG mode and has no slices, so CUDA does not list it",
        evidence=tuple(
            Evidence(subject=f"MIG devices of GPU {gpu.index}", expected="one or more", found="0")
            for gpu in undivided
        ),
        remedy=Remedy(
            kind="config-change",
            text="Turn MIG mode off, or create slices (nvidia-smi mig -cgi ... -C).",
            commands=tuple(f"sudo nvidia-smi -i {gpu.index} -mig 0" for gpu in undivided),
        ),
    )
