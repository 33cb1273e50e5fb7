"""Checks of what a container or the host's limits allow the environment's processes."""

from __future__ import annotations

from envdoctor.check import check
from envdoctor.facts import ContainerFact, LimitsFact, NetworkFact, NvidiaFact
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_MEMORY_WANTED = 4 * 1024**3
"""Bytes; importing a CUDA torch and starting CUDA on one GPU takes about half of it."""

_MEMLOCK_WANTED = 64 * 1024**2
_MIB = 1024**2


@check()
def container_memory_too_small(container: ContainerFact, nvidia: NvidiaFact) -> Verdict:
    """The container may use too little memory to train.

    ## What it checks
    The lowest memory limit of the control groups, against 4 GiB, on machines with a GPU.

    ## Why it matters
    The kernel kills the process ("Killed", exit code 137) while it imports torch or loads a model,
    and Python has no chance to say why.

    ## Remedy
    Start the container with a higher limit.

    ## Source
    Linux kernel documentation, control group v2, memory.max.
    """
    if not nvidia.gpus:
        return Skipped("no GPU to train on")
    limit = container.memory_limit_bytes
    if limit is None or limit >= _MEMORY_WANTED:
        return Ok("no limit" if limit is None else f"limit {limit // _MIB} MiB")
    return Problem(
        culprit="memory limit",
        owner="image",
        severity=Severity.WARNING,
        message=f"processes here may use {limit // _MIB} MiB of memory; training wants 4 GiB or "
        "more",
        evidence=(Evidence(subject="memory.max", expected=">= 4 GiB", found=f"{limit} bytes"),),
        remedy=Remedy(
            kind="container-option",
            text="Start the container with a higher limit (--memory, or resources.limits.memory).",
        ),
    )


@check()
def locked_memory_limit(limits: LimitsFact, network: NetworkFact) -> Verdict:
    """The limit of locked memory is too low for RDMA.

    ## What it checks
    The memlock limit, against 64 MiB, on machines with RDMA devices.

    ## Why it matters
    NCCL registers its buffers with the network card; without the limit it stops with "Cannot
    allocate memory" in ibv_reg_mr or ibv_create_cq.

    ## Remedy
    Lift the limit: `--ulimit memlock=-1` for a container, limits.conf or LimitMEMLOCK on a host.

    ## Source
    NCCL user guide, troubleshooting, RDMA.
    """
    if not network.hcas:
        return Skipped("no RDMA device here")
    limit = limits.memlock_bytes
    if limit is None or limit >= _MEMLOCK_WANTED or "CAP_IPC_LOCK" in limits.capabilities:
        return Ok("memory may be locked")
    return Problem(
        culprit="memlock",
        owner="image",
        severity=Severity.WARNING,
        message=f"{limit // 1024} KiB may be locked; RDMA through {network.hcas[0]} needs more",
        evidence=(Evidence(subject="memlock", expected="unlimited", found=f"{limit} bytes"),),
        remedy=Remedy(
            kind="container-option",
            text="Start the container with --ulimit memlock=-1, or lift the limit on the host.",
        ),
    )
