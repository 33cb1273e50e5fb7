"""Runs of the trainer as processes of their own, which tests kill, and what they left.

They are forked from a server that has imported torch already: a process that starts from nothing
spends most of its life on that.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from train.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess
    from pathlib import Path

OF_THE_MACHINE = ("tokens_per_second", "peak_memory_bytes", "mfu")
"""What the metrics say of clock and memory, and two runs do not share."""


def _work(arguments: list[str], stderr: str) -> None:
    descriptor = os.open(stderr, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, sys.__stderr__.fileno() if sys.__stderr__ else 2)
    torch.set_num_threads(1)
    os._exit(main(arguments))


def start(*arguments: str | Path, stderr: Path) -> BaseProcess:
    """Start `python -m train` with these arguments."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.train.killed_runs", "train.run"])
    process = context.Process(target=_work, args=([str(one) for one in arguments], str(stderr)))
    process.start()
    return process


def run(*arguments: str | Path, stderr: Path) -> tuple[int, str]:
    """Run to the end; return the exit code and what was said."""
    said = stderr.stat().st_size if stderr.exists() else 0
    process = start(*arguments, stderr=stderr)
    process.join(timeout=240)
    assert process.exitcode is not None
    return process.exitcode, stderr.read_bytes()[said:].decode()


def kill_after(out: Path, num_lines: int, *arguments: str | Path, stderr: Path) -> int:
    """Start, and send SIGKILL once the metrics have so many lines; return the exit code."""
    process = start(*arguments, stderr=stderr)
    deadline = time.monotonic() + 240
    while process.is_alive() and len(lines_of(out)) < num_lines:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def lines_of(out: Path) -> list[bytes]:
    """The lines of a run's metrics, of which the last may be half written."""
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().splitlines() if metrics.exists() else []


def trace(out: Path) -> list[dict[str, Any]]:
    """What the metrics say of the training, without what depends on the machine."""
    records = [json.loads(line) for line in lines_of(out)]
    return [
        {name: value for name, value in one.items() if name not in OF_THE_MACHINE}
        for one in records
    ]


def assert_same_training(out: Path, reference: Path) -> None:
    """Compare metrics, weights, optimizer and totals of two runs, bit for bit."""
    assert trace(out) == trace(reference)
    mine, theirs = dict(_leaves(_saved(out))), dict(_leaves(_saved(reference)))
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        if name != "/ledger/seconds":
            same = torch.equal(mine[name], value) if torch.is_tensor(value) else mine[name] == value
            assert same, name


def _saved(out: Path) -> dict[str, Any]:
    training: dict[str, Any] = torch.load(
        out / "checkpoint" / "optimizer.pt", map_location="cpu", weights_only=True
    )
    return {**training, "served": load_file(out / "checkpoint" / "model.safetensors")}


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict | list | tuple):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in items:
            yield from _leaves(value, f"{path}/{key}")
    else:
        yield path, tree
