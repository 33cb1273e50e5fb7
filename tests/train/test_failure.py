from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from train.failure import failed_line, failure_of, is_out_of_memory, out_of_memory_line
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
# Recorded with torch 2.13 on a CPU.
FULL_HOST = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"
    " tried to allocate 40000000000000 bytes. Error code 12 (Cannot allocate memory)"
)
TOO_MANY = "Storage size calculation overflowed with sizes=[4611686018427387904]"
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


@pytest.mark.parametrize(
    ("message", "told"),
    [
        pytest.param(FULL_HOST, "wanted 37,252.9 GiB more; lower train.num_anchors", id="torch"),
        pytest.param(TOO_MANY, f"{TOO_MANY}; lower", id="uncountable"),
        pytest.param("", "Python had no more; lower", id="python"),
    ],
)
def test_full_memory_of_the_host_is_told_in_one_line(message: str, told: str) -> None:
    assert out_of_memory_line(message).startswith(f"out of memory: {told}")


def test_what_a_cpu_has_no_room_for_is_known() -> None:
    for num_elements in (10**15, 2**62):
        with pytest.raises(RuntimeError) as raised:
            torch.empty(num_elements)
        assert is_out_of_memory(raised.value)


def test_what_the_gpu_reported_is_told_in_one_line() -> None:
    assert failed_line(LAUNCH).startswith("the GPU reported 'unspecified launch failure'; an Xid")
    assert "\n" not in failed_line(LAUNCH)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        pytest.param(SelfTestError("x"), 1, id="self-test"),
        pytest.param(torch.OutOfMemoryError(FULL), 1, id="memory"),
        pytest.param(RuntimeError(FULL_HOST), 1, id="memory-of-the-host"),
        pytest.param(RuntimeError(TOO_MANY), 1, id="more-than-a-number-counts"),
        pytest.param(MemoryError(), 1, id="memory-of-python"),
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
