"""Sum a tensor over several processes, one for each GPU.

Usage: all_reduce.py BACKEND RANKS SECONDS, in a folder that may be written to. BACKEND is `nccl`,
or `gloo` for processes without a GPU.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

NUM_VALUES = 1 << 20


def step(text: str) -> None:
    """Say what comes next."""
    sys.stderr.write(f"probe-step: {text}\n")
    sys.stderr.flush()


def work(rank: int, backend: str, num_ranks: int, seconds: float) -> None:
    """Be one rank: meet the others through a file, sum, and hold the sum against the right one."""
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    step(f"rank {rank} meets {num_ranks - 1} others")
    dist.init_process_group(
        backend,
        init_method=f"file://{Path.cwd() / 'rendezvous'}",
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(seconds=seconds),
    )
    step(f"rank {rank} sums")
    values = torch.full((NUM_VALUES,), float(rank + 1), device=device)
    dist.all_reduce(values)
    right = num_ranks * (num_ranks + 1) / 2
    if not bool((values == right).all()):
        found = float(values[values != right][0])
        raise ArithmeticError(f"rank {rank} has {found}, wanted {right}")
    dist.destroy_process_group()


def main(backend: str, num_ranks: int, seconds: float) -> None:
    """Write the answer."""
    start = time.perf_counter()
    spawn(work, args=(backend, num_ranks, seconds), nprocs=num_ranks)  # type: ignore[no-untyped-call]
    answer = {"num_ranks": num_ranks, "reduce_seconds": round(time.perf_counter() - start, 3)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
