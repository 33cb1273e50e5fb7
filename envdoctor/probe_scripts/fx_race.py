"""Let threads of one process compile while others call compiled functions, and count what fails.

Usage: fx_race.py REMEDY SECONDS SCENARIO..., SCENARIO being `backward`, `tracing` or, on a GPU,
`cold`. REMEDY is `none`, `lock` (one lock over forward and backward of every compiled call, and
over traces), or `processes` (one process each).

- backward: one worker takes the first forward and backward pass of new functions, two others call
  functions that are compiled already. Inductor's own passes run, without its code generation, so
  that no C++ compiler is needed.
- tracing: one worker traces functions with make_fx, two others call a compiled function.
- cold: three workers compile flex_attention, forward and backward, all from the start.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
import warnings
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch._inductor.compile_fx import _recursive_post_grad_passes, compile_fx
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

NUM_WORKERS = 3
PR_SET_PDEATHSIG = 1
COLD_LENGTHS = (256, 384)
STILL_SECONDS = 30.0
"""Threads that use no CPU for so long wait for each other; a slow machine only takes longer."""
PATIENCE_SECONDS = 240.0


def say(text: str) -> None:
    """Say what comes next."""
    sys.stderr.write(f"probe-step: {text}\n")


def function(x_TT: Tensor, scale: float = 1.0) -> Tensor:
    """Do what inductor's passes rewrite in the backward pass as well: products with sums."""
    h_TT = torch.addmm(x_TT[0], x_TT, x_TT) * scale
    return torch.nn.functional.gelu(h_TT) @ x_TT + h_TT


def another(number: int) -> Callable[[Tensor], Tensor]:
    """Return a function with code of its own, so that nothing known of others serves for it."""
    code = function.__code__.replace(co_name=f"function_{number}")
    made: Any = types.FunctionType(code, globals(), None, (1.0 + number / 1000,))
    return made  # type: ignore[no-any-return]


def without_code_generation(graph: Any, inputs: Any) -> Any:
    """Compile by inductor's passes, and run what they leave without generating code."""

    def compile_inner(graph: Any, inputs: Any, **more: Any) -> Any:
        with V.set_fake_mode(detect_fake_mode(inputs)):
            _recursive_post_grad_passes(graph, is_inference=bool(more.get("is_inference")))

        def call(arguments: Any) -> Any:
            return graph(*arguments)

        call._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001  what AOTAutograd asks for
        return call

    return compile_fx(graph, inputs, inner_compile=compile_inner)


def run(compiled: Callable[[Tensor], Tensor]) -> None:
    """Take one pass forward and backward."""
    compiled(torch.randn(8, 8, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]


class Worker:
    """Does one thing again and again, and counts.

    Args:
        action: One unit of work, given its number.
        is_counted: True for calls of what is compiled already, False for work beside them.
    """

    def __init__(self, action: Callable[[int], None], *, is_counted: bool) -> None:
        self.action = action
        self.is_counted = is_counted
        self.num_done = self.num_failed = 0
        self.error = ""

    def work(self, *, lock: contextlib.AbstractContextManager[Any], until: float) -> None:
        """Work until a time of the monotonic clock, at least once."""
        while self.num_done == 0 or time.monotonic() < until:
            self.num_done += 1
            try:
                with lock:
                    self.action(self.num_done)
            except Exception as error:  # noqa: BLE001  whatever it raises is what is looked for
                self.num_failed += 1
                self.error = f"{type(error).__name__}: {str(error).partition('.')[0]}"

    def answer(self) -> dict[str, Any]:
        """Return the counts."""
        counts = {"num_calls": self.num_done, "num_failed": self.num_failed}
        beside = {"num_units": self.num_done, "num_failed_units": self.num_failed}
        none = dict.fromkeys([*counts, *beside], 0)
        return {**none, **(counts if self.is_counted else beside), "error": self.error}


def caller() -> Worker:
    """Return a worker that calls a function which is compiled before it starts."""
    warm = torch.compile(another(0), backend="aot_eager")
    run(warm)
    return Worker(lambda _: run(warm), is_counted=True)


def compiler() -> Worker:
    """Return a worker that takes the first pass, forward and backward, of new functions."""
    # The first use of inductor prepares its patterns by tracing, for seconds.
    run(torch.compile(another(999_999), backend=without_code_generation))

    def compile_new(number: int) -> None:
        run(torch.compile(another(number), backend=without_code_generation))

    return Worker(compile_new, is_counted=False)


def tracer() -> Worker:
    """Return a worker that traces with make_fx."""

    def trace(_number: int) -> None:
        make_fx(lambda x_TT: function(x_TT))(torch.randn(8, 8))  # noqa: PLW0108  one argument, no default

    return Worker(trace, is_counted=False)


def causal_after(limit: Tensor) -> Callable[..., Tensor]:
    """Return a mask that captures a tensor, as those of drafters do."""

    def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) | (key < limit)

    return sees


def cold_starter(index: int) -> Worker:
    """Return a worker that compiles attention, forward and backward, for lengths of its own."""
    device = f"cuda:{index % torch.cuda.device_count()}"
    compiled: Any = torch.compile(flex_attention, dynamic=False)

    def work(_number: int) -> None:
        for length in COLD_LENGTHS:
            tokens = length + 128 * index
            sees = causal_after(torch.tensor(tokens // 2, device=device))
            mask = create_block_mask(sees, None, None, tokens, tokens, device=device)
            shape = (1, 2, tokens, 64)
            inputs = [torch.randn(shape, device=device, requires_grad=True) for _ in range(3)]
            compiled(*inputs, block_mask=mask).sum().backward()
        torch.cuda.synchronize(device)

    return Worker(work, is_counted=True)


SCENARIOS: dict[str, tuple[Callable[[], Worker], ...]] = {
    "backward": (compiler, caller, caller),
    "tracing": (tracer, caller, caller),
    "cold": tuple(partial(cold_starter, index) for index in range(NUM_WORKERS)),
}
"""What makes the workers of each scenario, ready to start."""


def wait_for(threads: list[threading.Thread], *, still_seconds: float = STILL_SECONDS) -> None:
    """Wait until all have ended, or until this process has stood still for too long."""
    limit = time.monotonic() + PATIENCE_SECONDS
    used, moved = time.process_time(), time.monotonic()
    while any(thread.is_alive() for thread in threads) and time.monotonic() < limit:
        next(thread for thread in threads if thread.is_alive()).join(0.5)
        # Threads in the background, such as a compiler's that wait for work, use less than this.
        if time.process_time() > used + still_seconds / 50:
            used, moved = time.process_time(), time.monotonic()
        elif time.monotonic() > moved + still_seconds:
            return


def in_threads(name: str, seconds: float, *, with_lock: bool) -> list[dict[str, Any] | None]:
    """Run a scenario in threads of this process; None for each that did not end."""
    lock: Any = threading.Lock() if with_lock else contextlib.nullcontext()
    workers = [make() for make in SCENARIOS[name]]
    until = time.monotonic() + (0 if name == "cold" else seconds)
    threads = [
        threading.Thread(target=one.work, kwargs={"lock": lock, "until": until}, daemon=True)
        for one in workers
    ]
    for thread in threads:
        thread.start()
    wait_for(threads)
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback()
    return [None if thread.is_alive() else one.answer() for one, thread in zip(workers, threads)]  # noqa: B905  Python 3.9


def be_process(names: list[str], index: int, seconds: float, meeting: Any) -> None:
    """Be one worker of each scenario in turn; it dies with who started it, not to wait for ever."""
    ready, starts, answers = meeting
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    starter = multiprocessing.parent_process()
    if starter is None or not starter.is_alive():
        return
    for name in names:
        worker = SCENARIOS[name][index]()
        ready.put(name)
        starts[name].wait()
        until = time.monotonic() + (0 if name == "cold" else seconds)
        worker.work(lock=contextlib.nullcontext(), until=until)
        answers.put(worker.answer())
    signal.pause()  # until it is killed: how torch ends is another matter


def received(queue: Any, processes: list[Any], *, until: float) -> Any:
    """Return what a process sent, None once it is too late; end if one of them died."""
    while time.monotonic() < until:
        try:
            return queue.get(timeout=0.5)
        except Empty:
            for index, process in enumerate(processes):
                if process.exitcode:
                    sys.exit(f"worker {index} ended with exit code {process.exitcode}")
    return None


def in_processes(names: list[str], seconds: float) -> dict[str, list[dict[str, Any] | None]]:
    """Run scenarios with a process for each worker; None for each that gave no answer."""
    spawning = multiprocessing.get_context("spawn")
    ready, answers = spawning.Queue(), spawning.Queue()
    starts = {name: spawning.Event() for name in names}
    processes = [
        spawning.Process(target=be_process, args=(names, index, seconds, (ready, starts, answers)))
        for index in range(NUM_WORKERS)
    ]
    for process in processes:
        process.start()
    found = {}
    try:
        for name in names:
            for _ in processes:  # each imports torch anew, which counts for nothing
                received(ready, processes, until=math.inf)
            starts[name].set()
            until = time.monotonic() + seconds + PATIENCE_SECONDS
            found[name] = [received(answers, processes, until=until) for _ in processes]
    finally:
        for process in processes:
            process.kill()
    return found


def case(name: str, remedy: str, found: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Add up what the workers of a scenario counted."""
    done = [one for one in found if one is not None]
    keys = ("num_calls", "num_failed", "num_units", "num_failed_units")
    return {
        "scenario": name,
        "remedy": remedy,
        **{key: sum(one[key] for one in done) for key in keys},
        "num_hung": len(found) - len(done),
        "error": next((one["error"] for one in done if one["error"]), ""),
    }


def main(remedy: str, seconds: float, names: list[str]) -> None:
    """Write the answer, and leave threads that hang behind."""
    warnings.simplefilter("ignore")  # compilers warn about their own imports
    os.environ["PYTHONWARNINGS"] = "ignore"  # also in processes, and who counts their semaphores
    say(f"{', '.join(names)}, remedy: {remedy}")
    if remedy == "processes":
        found = in_processes(names, seconds)
    else:
        found = {name: in_threads(name, seconds, with_lock=remedy == "lock") for name in names}
    cases = [case(name, remedy, found[name]) for name in names]
    sys.stdout.write(json.dumps({"torch": str(torch.__version__), "cases": cases}) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
