"""Run a matrix product, a convolution and a 2:4 sparse product on each device, against the CPU.

Usage: compute.py DEVICE...
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import conv2d

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SPARSE_SINCE = (8, 0)  # compute capability; cuSPARSELt and CUTLASS have no kernels below


class NotForDeviceError(Exception):
    """An operation that the device or build does not offer."""


def step(text: str) -> None:
    """Say what comes next."""
    sys.stderr.write(f"probe-step: {text}\n")
    sys.stderr.flush()


def random(*shape: int) -> Tensor:
    """Return the same half-precision numbers in every run, on the CPU."""
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, generator=generator).half()


def distance(found: Tensor, exact: Tensor) -> float | None:
    """Return how far a result is off, relative to the norm of the exact one; None if not finite."""
    off = float((found.double().cpu() - exact).norm() / exact.norm())
    return off if math.isfinite(off) else None


def matmul(device: str) -> float | None:
    """Multiply matrices: cuBLAS."""
    left, right = random(512, 512), random(512, 256)
    return distance(left.to(device) @ right.to(device), left.double() @ right.double())


def convolution(device: str) -> float | None:
    """Convolve, forward and backward: cuDNN with the sub-libraries that it opens by name."""
    numbers = random(4, 16, 16, 16), random(32, 16, 3, 3), random(4, 32, 16, 16)
    is_acceptable: Any = torch.backends.cudnn.is_acceptable  # untyped in torch
    if device != "cpu" and not is_acceptable(numbers[0].to(device)):
        raise NotForDeviceError("this build does not take cuDNN")
    results = []
    for place, dtype in ((device, torch.float16), ("cpu", torch.float64)):
        values, weights, out_grad = (item.to(place, dtype) for item in numbers)
        out = conv2d(values.requires_grad_(), weights.requires_grad_(), padding=1)
        grads = torch.autograd.grad(out, [values, weights], out_grad)
        results.append(torch.cat([item.detach().flatten() for item in (out, *grads)]))
    return distance(*results)


def sparse_matmul(device: str) -> float | None:
    """Multiply with a matrix in which two of four values are zero: cuSPARSELt."""
    if device == "cpu" or torch.cuda.get_device_capability(device) < SPARSE_SINCE:
        raise NotForDeviceError("2:4 sparsity needs compute capability 8.0")
    kept = torch.tensor([0, 0, 1, 1]).tile((256, 64)).bool()
    left, right = random(256, 256) * kept, random(256, 256)
    sparse = torch.sparse.to_sparse_semi_structured(left.to(device))
    return distance(torch.mm(sparse, right.to(device)), left.double() @ right.double())


OPERATIONS: tuple[tuple[str, Callable[[str], float | None]], ...] = (
    ("matmul", matmul),
    ("convolution", convolution),
    ("2:4 sparse matmul", sparse_matmul),
)


def attempt(name: str, operation: Callable[[str], float | None], device: str) -> dict[str, Any]:
    """Run one operation and return how it went; what it raises is part of the answer."""
    step(f"{name} on {device}")
    entry: dict[str, Any] = {"device": device, "name": name, "status": "passed"}
    start = time.perf_counter()
    try:
        entry["distance"] = operation(device)
    except NotForDeviceError as error:
        entry |= {"status": "skipped", "reason": str(error)}
    except (RuntimeError, ValueError, NotImplementedError) as error:
        entry |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {**entry, "seconds": round(time.perf_counter() - start, 3)}


def loaded_libraries() -> list[str]:
    """Return the shared objects mapped into this process; cuDNN opens its own only when used."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123  PEP 383 for names that are no UTF-8
        fields = [line.rstrip("\n").split(maxsplit=5)[-1] for line in stream]
    return sorted({item for item in fields if item.startswith("/") and ".so" in item})


def main(devices: list[str]) -> None:
    """Write the answer."""
    warnings.simplefilter("ignore")  # torch calls its 2:4 sparsity a prototype, once a process
    operations = [
        attempt(name, operation, device) for device in devices for name, operation in OPERATIONS
    ]
    answer = {"operations": operations, "loaded": loaded_libraries()}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
