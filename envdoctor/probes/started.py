"""Run the programs of `probe_scripts` in the inspected interpreter, each in a process of its own.

Nothing runs unless the subject allows it. How a process ends is a reading like any other.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from envdoctor.errors import ToolError
from envdoctor.facts import (
    AllReduceProbeFact,
    AttentionProbeFact,
    ComputeProbeFact,
    CudaStartFact,
    Fact,
    ImportProbeFact,
    InterpreterFact,
    LoadedLibrary,
    LoaderFact,
    ProbeRun,
)
from envdoctor.probes.heard import Heard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from envdoctor.facts import FactSet
    from envdoctor.probes.subject import Subject

_SECONDS = {
    "import_torch": 120,
    "compute": 180,
    "all_reduce": 120,
    "compiled_attention": 300,
    "fx_race": 300,
}
"""How long each program may run, unless the subject says otherwise."""

_SHARE_OF_COLLECTIVE = 0.75
"""Of a program's time, after which NCCL gives up by itself and can still say why."""

_CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl|torch|c10|caffe2|triton)")

F = TypeVar("F", bound=Fact)


def probe_import(subject: Subject, facts: FactSet) -> ImportProbeFact:
    """Import torch and start CUDA."""
    if subject.probing is None:
        return ImportProbeFact()
    run, answer = start("import_torch", subject=subject, facts=facts)
    return fact_of(ImportProbeFact, run, _with_libraries(answer, facts))


def probe_compute(subject: Subject, facts: FactSet) -> ComputeProbeFact:
    """Compute on every GPU that torch sees."""
    obstacle, devices = gpus(subject, facts, ComputeProbeFact)
    if obstacle:
        return ComputeProbeFact(run=obstacle)
    run, answer = start("compute", *devices, subject=subject, facts=facts)
    return fact_of(ComputeProbeFact, run, _with_libraries(answer, facts))


def probe_all_reduce(subject: Subject, facts: FactSet) -> AllReduceProbeFact:
    """Sum over all GPUs through NCCL."""
    obstacle, devices = gpus(subject, facts, AllReduceProbeFact)
    if obstacle:
        return AllReduceProbeFact(run=obstacle)
    seconds = _SHARE_OF_COLLECTIVE * _limit("all_reduce", subject)
    arguments = ("nccl", str(len(devices)), f"{seconds:g}")
    run, answer = start("all_reduce", *arguments, subject=subject, facts=facts)
    return fact_of(AllReduceProbeFact, run, answer)


def probe_attention(subject: Subject, facts: FactSet) -> AttentionProbeFact:
    """Compile flex_attention and hold it against dense attention, on the first GPU."""
    obstacle, devices = gpus(subject, facts, AttentionProbeFact)
    if obstacle:
        return AttentionProbeFact(run=obstacle)
    run, answer = start("compiled_attention", devices[0], subject=subject, facts=facts)
    return fact_of(AttentionProbeFact, run, answer)


def read_cuda_start(subject: Subject, facts: FactSet) -> CudaStartFact:
    """Tell what the import probe learnt of CUDA's start, if it ran: a reading starts nothing."""
    del subject
    told = facts.need(ImportProbeFact)
    if told.driver_code is None:
        return CudaStartFact()
    return CudaStartFact(
        code=told.driver_code,
        name=told.driver_name,
        num_devices=told.driver_devices,
        runtime_code=told.runtime_code or 0,
        runtime_name=told.runtime_name,
    )


def start(
    program: str, *arguments: str, subject: Subject, facts: FactSet
) -> tuple[ProbeRun, dict[str, Any]]:
    """Run one program to its end or its time limit.

    Returns:
        How it ended, and what it answered; nothing unless it passed.
    """
    import tempfile  # noqa: PLC0415  a check without probes need not pay for this and the next

    from envdoctor import shell  # noqa: PLC0415

    python = facts.need(InterpreterFact).python
    if python is None:
        return ProbeRun(status="skipped", reason="the environment has no interpreter"), {}
    script = Path(__file__).parents[1] / "probe_scripts" / f"{program}.py"
    limit = _limit(program, subject)
    heard = Heard(subject.probing.tell if subject.probing else None)
    temporary = tempfile.TemporaryDirectory(prefix="envdoctor-probe-", ignore_cleanup_errors=True)
    with shell.stoppable(), temporary as folder:
        try:
            done = shell.run(
                [python, str(script), *arguments],
                env=_variables(subject, folder),
                timeout=limit,
                cwd=Path(folder),
                watch=heard,
            )
        except TimeoutError:
            reason = f"did not end within {limit:g} s"
            return heard.run("timed_out", reason, seconds=limit), {}
        except ToolError as error:
            return ProbeRun(status="failed", reason=error.message), {}
    return _ended(done, heard)


def paired(loaded: Sequence[str], predicted: Mapping[str, str]) -> tuple[LoadedLibrary, ...]:
    """Put the libraries that a process had loaded beside those that were predicted.

    Args:
        loaded: Paths without symbolic links.
        predicted: Paths without symbolic links, by SONAME.

    Returns:
        Those of torch and CUDA, and whatever else was predicted.
    """
    names = {path: name for name, path in predicted.items()}
    found = []
    for path in loaded:
        file = path.rpartition("/")[2]
        # The file behind a SONAME may carry more of its version: libstdc++.so.6 is
        # libstdc++.so.6.0.30.
        near = (name for name in predicted if file == name or file.startswith(f"{name}."))
        name = names.get(path) or next(near, "")
        if name or _CUDA_LIBRARY.match(file):
            where = predicted.get(name, "")
            found.append(LoadedLibrary(name=name or file, path=path, predicted=where))
    return tuple(found)


def gpus(subject: Subject, facts: FactSet, kind: type[Fact]) -> tuple[ProbeRun | None, list[str]]:
    """Return the GPUs that torch sees, or why there is nothing to run on.

    Args:
        subject: The environment.
        facts: What is known of it.
        kind: What the programs would tell.
    """
    if subject.probing is None:
        return ProbeRun(), []
    if not subject.probing.covers(kind):
        return ProbeRun(reason="no check that was selected needs it"), []
    imported = facts.need(ImportProbeFact)
    if imported.run.status != "passed":
        return ProbeRun(status="skipped", reason="torch does not import"), []
    if not imported.cuda_available or not imported.num_devices:
        return ProbeRun(status="skipped", reason="torch sees no GPU"), []
    return None, [f"cuda:{index}" for index in range(imported.num_devices)]


def _limit(program: str, subject: Subject) -> float:
    told = subject.probing.timeout_seconds if subject.probing else None
    return told or _SECONDS[program]


def _variables(subject: Subject, folder: str) -> dict[str, str]:
    """Return the variables of the environment's processes, caches of compilers set apart.

    A private cache shows that compiling works; and nothing is written into the environment.
    """
    own = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }
    told = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/dev/stderr"}
    quiet = {} if "NCCL_DEBUG" in subject.variables else told
    return {**quiet, **subject.variables, **own}


def _ended(done: Any, heard: Heard) -> tuple[ProbeRun, dict[str, Any]]:
    if done.returncode < 0:
        name = _signal_name(-done.returncode)
        return heard.run("crashed", name, seconds=done.seconds), {}
    if done.returncode > 0:
        reason = heard.reason or f"it said nothing and ended with {done.returncode}"
        return heard.run("failed", reason, seconds=done.seconds), {}
    # An imported module may print as well.
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    try:
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    except ValueError:
        answer = {}
    if not answer:
        return heard.run("failed", "it gave no answer", seconds=done.seconds), {}
    return ProbeRun(status="passed", seconds=round(done.seconds, 3), reason=""), answer


def _signal_name(number: int) -> str:
    import signal  # noqa: PLC0415  its enumerations take 2 ms, which a check without probes need not pay

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _with_libraries(answer: dict[str, Any], facts: FactSet) -> dict[str, Any]:
    loaded = answer.pop("loaded", [])
    predicted: dict[str, str] = {}
    loader = facts.get(LoaderFact)
    if isinstance(loader, LoaderFact):
        for item in loader.objects:
            name = item.soname or item.path.rpartition("/")[2]
            predicted.setdefault(name, os.path.realpath(item.path))
    return {**answer, "libraries": paired(loaded, predicted)}


def fact_of(kind: type[F], run: ProbeRun, answer: dict[str, Any]) -> F:
    """Return the fact of an answer; one that does not fit is a failure of the run."""
    import msgspec  # noqa: PLC0415  40 ms that a check without probes need not pay

    try:
        return msgspec.convert({"run": run, **answer}, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        reason = f"its answer is not valid: {error}"
        return msgspec.convert(
            {"run": ProbeRun(status="failed", seconds=run.seconds, reason=reason)},
            kind,
            from_attributes=True,
        )
