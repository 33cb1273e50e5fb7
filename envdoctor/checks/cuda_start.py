"""Check of what CUDA itself answered when it was started."""

from __future__ import annotations

from envdoctor.check import check
from envdoctor.facts import ContainerFact, CudaStartFact, NvidiaFact, TorchBuildFact
from envdoctor.verdict import Evidence, Ok, Owner, Problem, Remedy, Skipped, Verdict

_RESTART = Remedy(
    kind="container-option",
    text="Start the container anew with all NVIDIA devices (`--gpus all`): /dev/nvidia-uvm may be "
    "missing.",
)
_REBOOT = Remedy(
    kind="reboot",
    text="Reboot the host, or reload the nvidia and nvidia_uvm modules while no process uses them.",
    commands=("sudo reboot",),
)
_OF_DEVICES = frozenset({100, 101, 999})
"""No device, invalid device, unknown error: what CUDA says where a device node is missing."""

_EXPLAINED_ELSEWHERE = {
    34: "libcuda-is-stub",
    35: "driver-too-old-for-cuda",
    802: "gpu-fabric-not-ready",
    803: "libcuda-shadowed",
    804: "libcuda-shadowed",
}
"""Results whose cause has a check of its own. Source: cuda.h and driver_types.h of CUDA 13."""


@check(
    requires=[
        "torch-not-installed",
        "no-nvidia-driver",
        "driver-too-old-for-cuda",
        "gpu-fabric-not-ready",
        "visible-device-not-found",
        "mig-mode-without-slices",
        "libcuda-missing",
        "libcuda-is-stub",
        "libcuda-shadowed",
    ]
)
def cuda_does_not_start(
    cuda_start: CudaStartFact,
    nvidia: NvidiaFact,
    torch_build: TorchBuildFact,
    container: ContainerFact,
) -> Verdict:
    """CUDA refuses to start although driver, libraries and GPUs look right.

    ## What it checks
    The result of starting CUDA, where a probe or a snapshot tells it and no other check explains
    it.

    ## Why it matters
    `torch.cuda.is_available()` is False. What is left, when all that can be read is right, is the
    state of the driver: a GPU that needs a reset, a module that is not loaded, a missing device.

    ## Remedy
    In a container, start it anew with all devices; on a host, reboot or reload the driver.

    ## Source
    CUDA driver API, cuInit; NVIDIA/nvidia-docker#1730.
    """
    if cuda_start.code is None:
        return Skipped("CUDA was not started")
    if not torch_build.cuda or not nvidia.gpus:
        return Skipped("torch is not a CUDA build, or there is no GPU")
    code = cuda_start.code or cuda_start.runtime_code
    name = cuda_start.name if cuda_start.code else cuda_start.runtime_name
    if not code:
        return Ok(f"CUDA starts and lists {cuda_start.num_devices} GPU(s)")
    remedy = _RESTART if container.kind and code in _OF_DEVICES else _REBOOT
    owner: Owner = "user" if remedy is _RESTART else "admin"
    hint = _EXPLAINED_ELSEWHERE.get(code)
    return Problem(
        culprit="CUDA",
        owner=owner,
        message=f"CUDA does not start: error {code} {name}".rstrip()
        + (f" (see {hint})" if hint else "")
        + "; driver, libraries and GPUs look right",
        evidence=(Evidence(subject="cuInit", expected="0", found=f"{code} {name}".rstrip()),),
        remedy=remedy,
    )
