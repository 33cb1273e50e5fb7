from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from train.failure import failed_line, failure_of, out_of_memory_line
from train.saver import SaveError
from train.selftest import SelfTestError

# Recorded with torch 2.11 on an H200 that other processes had filled.
FULL = (
    "CUDA out of memory. Tried to allocate 672.00 MiB. GPU 0 has a total capacity of 139.80 GiB of"
    " which 440.75 MiB is free. Process 531 has 9.64 GiB memory in use. Process 458 has 99.18 GiB"
    " memory in use. Including non-PyTorch memory, this process has 9.70 GiB memory in use. Of the"
    " allocated memory 8.08 GiB is allocated by PyTorch, and 896.96 MiB is reserved by PyTorch but"
    " unallocated."
)
LAUNCH = "CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure' in\n"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        pytest.param(
            FULL,
            "wanted 672.00 MiB more, found 440.75 MiB free of 139.80 GiB, Process 531 holds"
            " 9.64 GiB, Process 458 holds 99.18 GiB; lower train.num_anchors",
            id="beside-others",
        ),
        pytest.param("HIP out of memory.\nmore", "HIP out of memory.; lower", id="unknown-words"),
    ],
)
def test_full_memory_is_told_in_one_line(message: str, told: str) -> None:
    line = out_of_memory_line(message)
    assert line.startswith(f"out of the GPU's memory: {told}")
    assert "\n" not in line


def test_what_the_gpu_reported_is_told_in_one_line() -> None:
    assert failed_line(LAUNCH).startswith("the GPU reported 'unspecified launch failure'; an Xid")
    assert "\n" not in failed_line(LAUNCH)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        pytest.param(SelfTestError("x"), 1, id="self-test"),
        pytest.param(torch.OutOfMemoryError(FULL), 1, id="memory"),
        pytest.param(torch.AcceleratorError(LAUNCH), 3, id="gpu"),
        pytest.param(SaveError("x"), 7, id="save"),
        pytest.param(OSError(errno.ENOSPC, "x"), 7, id="disk"),
        pytest.param(OSError(errno.EACCES, "x"), None, id="other-file-error"),
        pytest.param(RuntimeError("x"), None, id="bug"),
    ],
)
def test_exit_code_of_what_ends_a_run(error: Exception, exit_code: int | None) -> None:
    failure = failure_of(error, Path("runs/a"))
    assert (failure.exit_code if failure else None) == exit_code
    if failure and exit_code != 1:
        assert "--resume runs/a goes on" in failure.line
