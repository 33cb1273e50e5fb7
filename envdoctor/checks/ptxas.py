"""Checks of ptxas, with which Triton assembles its kernels."""

from __future__ import annotations

import re
import shlex

from envdoctor.check import check, problems
from envdoctor.checks.gpu import known_arch, runs
from envdoctor.compatibility import ptxas_releases
from envdoctor.facts import (
    CachesFact,
    DistributionsFact,
    Gpu,
    NvidiaFact,
    PolicyFact,
    Ptxas,
    PtxasFact,
    TorchBuildFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

NO_TRITON = "Triton has nothing to compile here: no GPU, or no Triton"
_TRITONS = ("triton", "pytorch-triton")
_BLACKWELL = 10
"""Major compute capability from which on Triton takes `ptxas-blackwell`."""


def compiles_for_gpu(nvidia: NvidiaFact, installed: DistributionsFact) -> bool:
    """Tell whether Triton is installed and there is a GPU to compile for."""
    return bool(nvidia.gpus) and any(map(installed.find, _TRITONS))


@check(requires=["torch-not-installed"])
def ptxas_too_old(
    ptxas: PtxasFact,
    nvidia: NvidiaFact,
    installed: DistributionsFact,
    caches: CachesFact,
    torch_build: TorchBuildFact,
    policy: PolicyFact,
) -> Verdict:
    """Triton's assembler does not know this GPU.

    ## What it checks
    The CUDA release of the ptxas that Triton starts for each GPU (TRITON_PTXAS_PATH, else the
    bundled one; for compute capability 10.0 and later `ptxas-blackwell` where Triton brings it),
    against the first release that knows the GPU's capability.

    ## Why it matters
    Every Triton kernel stops with "is not defined for option gpu-name"; torch's own kernels run.
    A warning where Triton's cache holds kernels: those run, so it shows only with a new one.

    ## Remedy
    Point TRITON_PTXAS_PATH at a ptxas that is new enough, or take a newer Triton with its torch.

    ## Source
    triton-lang/triton#8539; PTX ISA release history; triton/backends/nvidia/compiler.py 3.6.
    """
    if not compiles_for_gpu(nvidia, installed):
        return Skipped(NO_TRITON)
    # Where torch itself has no code for a GPU, that is the finding: Triton comes with torch.
    arch = known_arch(torch_build)
    served = [gpu for gpu in _kinds(nvidia) if not arch or runs(gpu, arch)]
    judged = [(gpu, tool) for gpu in served if (tool := chosen_tool(ptxas, gpu))]
    known = [(gpu, tool) for gpu, tool in judged if tool.release]
    if not known:
        return Skipped("no ptxas of Triton was found, or its release is unknown")
    found = [
        _too_old(gpu, tool, ptxas, policy, has_kernels=_has_kernels(caches))
        for gpu, tool in known
        if not knows(tool.release, gpu.capability)
    ]
    return problems(found, Ok(f"ptxas {known[0][1].release} knows every GPU here"))


def chosen_tool(ptxas: PtxasFact, gpu: Gpu) -> Ptxas | None:
    """Return the ptxas that Triton starts for a GPU; one that cannot be started is passed over."""
    splits = any(tool.for_blackwell and not tool.variable for tool in ptxas.tools)
    wanted = splits and int(gpu.capability.partition(".")[0]) >= _BLACKWELL
    usable = (tool for tool in ptxas.tools if tool.for_blackwell == wanted and not tool.error)
    return next(usable, None)


def knows(release: str, capability: str) -> bool:
    """Tell whether the ptxas of a CUDA release knows a compute capability.

    A capability that the table does not have is newer than it, and is taken to need a release
    after the newest that it has.
    """
    table = ptxas_releases()
    if _numbers(capability) < min(map(_numbers, table)):
        return True  # older GPUs: the architectures in torch's own build are the limit
    first = table.get(capability)
    if first is None:
        return _numbers(release) > max(map(_numbers, table.values()))
    return _numbers(release) >= _numbers(first)


def _has_kernels(caches: CachesFact) -> bool:
    return any(folder.kind == "triton" and folder.num_entries for folder in caches.folders)


def _kinds(nvidia: NvidiaFact) -> list[Gpu]:
    return list({gpu.capability: gpu for gpu in nvidia.gpus}.values())


def _too_old(
    gpu: Gpu, tool: Ptxas, ptxas: PtxasFact, policy: PolicyFact, *, has_kernels: bool
) -> Problem:
    arch = "sm_" + gpu.capability.replace(".", "")
    needed = ptxas_releases().get(gpu.capability, "a later release")
    variable = "TRITON_PTXAS_BLACKWELL_PATH" if tool.for_blackwell else "TRITON_PTXAS_PATH"
    bundled = next((item for item in ptxas.tools if not item.variable), tool)
    unset = bool(tool.variable) and knows(bundled.release, gpu.capability)
    return Problem(
        culprit=tool.variable if unset else tool.path,
        severity=Severity.WARNING if has_kernels else Severity.ERROR,
        message=f"{tool.variable or 'Triton'}'s ptxas is of CUDA {tool.release} and does not know "
        f"{arch} (GPU {gpu.index}, {gpu.name}); CUDA {needed} is the first that does",
        evidence=(
            Evidence(subject=tool.path, expected=f"CUDA {needed}", found=f"CUDA {tool.release}"),
            Evidence(subject=f"GPU {gpu.index}", found=f"compute capability {gpu.capability}"),
        ),
        remedy=Remedy(
            kind="unset-env",
            text="Unset the variable: the ptxas that Triton brings is new enough.",
            commands=(f"unset {tool.variable}",),
        )
        if unset
        else Remedy(
            kind="set-env",
            text=f"Point {variable} at the ptxas of CUDA {needed} or later, from a CUDA toolkit or "
            "from nvidia-cuda-nvcc; or take a newer Triton with its torch.",
            commands=_newer_ptxas(variable, gpu, ptxas, policy),
        ),
    )


def _newer_ptxas(variable: str, gpu: Gpu, ptxas: PtxasFact, policy: PolicyFact) -> tuple[str, ...]:
    """Return commands that name a newer ptxas: one that is here already, or the package's."""
    for tool in ptxas.spare:
        if tool.release and not tool.error and knows(tool.release, gpu.capability):
            return (f"export {variable}={shlex.quote(tool.path)}",)
    bundled = next((tool.path for tool in ptxas.tools if not tool.variable), "")
    site = bundled.partition("/triton/")[0]
    return (
        f"{policy.pip_install} nvidia-cuda-nvcc",
        f"export {variable}={shlex.quote(f'{site}/nvidia/cu13/bin/ptxas')}",
    )


@check(requires=["torch-not-installed"], follows_from=["package-files-damaged"])
def ptxas_not_executable(ptxas: PtxasFact) -> Verdict:
    """Triton may not start its ptxas.

    ## What it checks
    The permission bits of the ptxas that Triton brings, on machines with a GPU.

    ## Why it matters
    Copying an environment without its permissions, or unpacking it with a tool that drops them,
    leaves a whole-looking Triton of which every kernel stops with "permission denied".

    ## Remedy
    Set the bits, or reinstall Triton.

    ## Source
    triton/knobs.py 3.6.0, read 2026-11-29.
    """
    found = [
        Problem(
            culprit=tool.path,
            message=f"{tool.path} may not be executed, so Triton cannot assemble kernels",
            evidence=(Evidence(subject=tool.path, expected="mode 0755", found=tool.error),),
            remedy=Remedy(
                kind="reinstall-package",
                text="Set the bit, or reinstall Triton.",
                commands=(f"chmod 755 {shlex.quote(tool.path)}",),
            ),
        )
        for tool in ptxas.tools
        if not tool.variable and "executed" in tool.error
    ]
    return problems(found, Ok("no ptxas that may not be started"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
