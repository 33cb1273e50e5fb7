"""Run compiled flex_attention forward and backward at two lengths, against dense attention.

Usage: compiled_attention.py DEVICE [eager]. With `eager` nothing is compiled, so that attention
takes the path that holds all scores: the control for the memory figure. On `cpu`, where torch
offers no backward, only the forward pass runs.

B = 1 sequence, H = heads, T = positions, D = head dimension.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

HEADS, HEAD_DIM = 2, 64
LENGTHS = (512, 4096)
BFLOAT16_SINCE = (8, 0)  # compute capability


def step(text: str) -> None:
    """Say what comes next."""
    sys.stderr.write(f"probe-step: {text}\n")
    sys.stderr.flush()


def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Allow a query to see keys up to its own position."""
    del batch, head
    return query >= key


def dense(query_BHTD: Tensor, key_BHTD: Tensor, value_BHTD: Tensor) -> Tensor:
    """Attend the plain way, with all scores in memory."""
    length = query_BHTD.shape[2]
    positions_T = torch.arange(length, device=query_BHTD.device)
    scores_BHTT = query_BHTD @ key_BHTD.transpose(2, 3) / HEAD_DIM**0.5
    hidden_TT = positions_T[:, None] < positions_T[None, :]
    return torch.softmax(scores_BHTT.masked_fill(hidden_TT, float("-inf")), dim=-1) @ value_BHTD


def attended(
    attend: Callable[..., Tensor], length: int, device: str
) -> Callable[..., list[Tensor]]:
    """Return a function that gives output and gradients of the same random inputs in any dtype."""
    generator = torch.Generator(device).manual_seed(length)
    shape = (1, HEADS, length, HEAD_DIM)
    numbers = [torch.randn(shape, generator=generator, device=device) for _ in range(4)]

    def compute(dtype: torch.dtype) -> list[Tensor]:
        *inputs, out_grad = [item.to(dtype) for item in numbers]
        if device == "cpu":
            return [attend(*inputs)]
        out = attend(*[item.requires_grad_() for item in inputs])
        return [out, *torch.autograd.grad(out, inputs, out_grad)]

    return compute


def distance(found: list[Tensor], exact: list[Tensor]) -> float | None:
    """Return how far the worst tensor is off, relative to its norm; None if not finite."""
    pairs = zip(found, exact)  # noqa: B905  Python 3.9
    off = [float((ours.float() - right).norm() / right.norm()) for ours, right in pairs]
    return max(off) if all(map(math.isfinite, off)) else None


def case(attend: Callable[..., Tensor], length: int, device: str, dtype: torch.dtype) -> Any:
    """Return how far the results of one length are off, and the memory that a second run takes."""
    on_gpu = device != "cpu"
    mask = create_block_mask(causal, None, None, length, length, device=device)
    run = attended(lambda *inputs: attend(*inputs, block_mask=mask), length, device)
    step(f"attention over {length} positions, forward and backward")
    start = time.perf_counter()
    found = run(dtype)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    exact = attended(dense, length, device)(torch.float32)
    off = distance(found, exact)
    peak_bytes = None
    if on_gpu:
        del found, exact
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(dtype)
        torch.cuda.synchronize()
        peak_bytes = torch.cuda.max_memory_allocated() - before
    return {
        "length": length,
        "distance": off,
        "seconds": round(seconds, 3),
        "peak_bytes": peak_bytes,
        "scores_bytes": HEADS * length * length * 4,
    }


def main(device: str, mode: str) -> None:
    """Write the answer."""
    warnings.simplefilter("ignore")  # compilers warn about their own imports
    half = device == "cpu" or torch.cuda.get_device_capability(device) >= BFLOAT16_SINCE
    dtype = torch.bfloat16 if half else torch.float16
    attend: Any = flex_attention if mode == "eager" else torch.compile(flex_attention)
    cases = [case(attend, length, device, dtype) for length in LENGTHS]
    answer = {"device": device, "dtype": str(dtype).partition(".")[2], "cases": cases}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], (sys.argv[2:] or ["compiled"])[0])
