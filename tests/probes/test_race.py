from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envdoctor.checks.hazards import THREAD_LOCAL_SINCE
from envdoctor.facts import (
    RACE_REMEDIES,
    FactSet,
    ImportProbeFact,
    InterpreterFact,
    NvidiaFact,
    ProbeRun,
    RaceProbeFact,
)
from envdoctor.probes.race import probe_race
from envdoctor.probes.subject import Probing, Subject
from tests.processes import is_alive, wait_until

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "envdoctor" / "probe_scripts" / "fx_race.py"
IS_AFFECTED = tuple(map(int, torch.__version__.split(".")[:2])) < THREAD_LOCAL_SINCE
NUM_WORKERS = 3
ON_REQUEST = Probing(kinds=frozenset({RaceProbeFact}))


def case_of(folder: Path, *arguments: str) -> dict[str, object]:
    """Run the program in this interpreter and return its only case."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder)},
        capture_output=True,
        cwd=folder,
        check=True,
        text=True,
    )
    (case,) = json.loads(done.stdout.splitlines()[-1])["cases"]
    assert isinstance(case, dict)
    return case


def test_trace_in_one_thread_fails_calls_in_others(tmp_path: Path) -> None:
    case = case_of(tmp_path, "none", "1", "tracing")
    assert case["num_units"]
    assert (case["num_failed_units"], case["num_hung"]) == (0, 0)
    assert bool(case["num_failed"]) is IS_AFFECTED
    assert str(case["error"]).startswith("RuntimeError: Detected that you are") is IS_AFFECTED


@pytest.mark.slow  # imports torch nine times
@pytest.mark.parametrize("scenario", ["backward", "tracing"])
@pytest.mark.parametrize("remedy", ["lock", "processes"])
def test_remedies_leave_no_failing_call(tmp_path: Path, scenario: str, remedy: str) -> None:
    case = case_of(tmp_path, remedy, "4", scenario)
    assert case["num_calls"]
    assert case["num_units"]
    assert case["error"] == ""
    assert (case["num_failed"], case["num_failed_units"], case["num_hung"]) == (0, 0, 0)


@pytest.mark.slow  # imports torch four times
@pytest.mark.parametrize("is_early", [True, False])
def test_workers_die_with_the_program_that_started_them(tmp_path: Path, *, is_early: bool) -> None:
    running = subprocess.Popen(
        [sys.executable, str(SCRIPT), "processes", "60", "tracing"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    # Four with the one that looks after semaphores; torch starts threads once it is imported.
    wait_until(lambda: len(children.read_text().split()) > NUM_WORKERS, seconds=120)
    pids = [int(pid) for pid in children.read_text().split()]
    if not is_early:
        time.sleep(20)
    running.kill()
    running.wait()
    wait_until(lambda: not any(map(is_alive, pids)), seconds=120)


@pytest.mark.parametrize(
    "seconds_until", [0, pytest.param(20, marks=pytest.mark.slow)], ids=["at-first", "later"]
)
def test_worker_that_dies_ends_the_program_at_once(tmp_path: Path, seconds_until: int) -> None:
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), "processes", "200", "tracing"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        # Four with the one that looks after semaphores; the workers come after it.
        wait_until(lambda: len(children.read_text().split()) > NUM_WORKERS, seconds=120)
        pids = [int(pid) for pid in children.read_text().split()]
        time.sleep(seconds_until)
        os.kill(pids[2], signal.SIGKILL)
        said = running.stderr.read()
    assert running.returncode == 1
    assert said.splitlines()[-1] == "worker 1 ended with exit code -9"
    wait_until(lambda: not any(map(is_alive, pids)), seconds=120)


@pytest.mark.slow  # imports torch
def test_first_backward_pass_fails_calls_in_other_threads(tmp_path: Path) -> None:
    case = case_of(tmp_path, "none", "8", "backward")
    assert bool(case["num_failed"]) is IS_AFFECTED


_WAITING = """
import threading, time
from envdoctor.probe_scripts.fx_race import wait_for

def hold(first, second):
    with first:
        time.sleep(0.5)
        with second:
            pass

def compute():
    until = time.monotonic() + 4
    while time.monotonic() < until:
        pass

a, b = threading.Lock(), threading.Lock()
ACTIONS = {"deadlock": [(hold, (a, b)), (hold, (b, a))], "work": [(compute, ())]}
threads = [threading.Thread(target=f, args=x, daemon=True) for f, x in ACTIONS[NAME]]
for one in threads:
    one.start()
wait_for(threads, still_seconds=2)
print(sum(one.is_alive() for one in threads))
"""


@pytest.mark.parametrize(("name", "num_hung"), [("deadlock", 2), ("work", 0)])
def test_who_computes_is_waited_for_and_who_stands_still_is_not(name: str, num_hung: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"NAME = {name!r}\n{_WAITING}"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(done.stdout) == num_hung


@pytest.mark.parametrize(
    ("probing", "imported", "status", "reason"),
    [
        pytest.param(None, "passed", "not_run", "without --probe", id="no-leave"),
        pytest.param(Probing(), "passed", "not_run", "on request alone", id="every-check"),
        pytest.param(
            Probing(kinds=frozenset({NvidiaFact})), "passed", "not_run", "on request", id="others"
        ),
        pytest.param(ON_REQUEST, "crashed", "skipped", "torch does not import", id="no-torch"),
    ],
)
def test_race_is_provoked_on_request_alone(
    probing: Probing | None, imported: str, status: str, reason: str
) -> None:
    facts = FactSet([ImportProbeFact(run=ProbeRun(status=imported))])  # type: ignore[arg-type]
    found = probe_race(Subject(prefix=Path("/nowhere"), probing=probing), facts)
    assert found.run.status == status
    assert reason in found.run.reason
    assert found.cases == ()


def test_program_that_fails_ends_the_probe(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no such symbol')\n")
    facts = FactSet(
        [
            InterpreterFact(
                prefix=str(tmp_path),
                python=sys.executable,
                version="3.11",
                is_venv=True,
                site_packages=(),
            ),
            ImportProbeFact(run=ProbeRun(status="passed")),
        ]
    )
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    found = probe_race(Subject(prefix=tmp_path, variables=variables, probing=ON_REQUEST), facts)
    assert (found.run.status, found.run.reason) == ("failed", "ImportError: no such symbol")
    assert found.cases == ()


@pytest.mark.slow  # runs each scenario under each remedy
def test_every_remedy_is_tried_and_read(tmp_path: Path) -> None:
    facts = FactSet(
        [
            InterpreterFact(
                prefix=sys.prefix,
                python=sys.executable,
                version="3.11",
                is_venv=True,
                site_packages=(),
            ),
            ImportProbeFact(run=ProbeRun(status="passed")),
        ]
    )
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    found = probe_race(Subject(prefix=tmp_path, variables=variables, probing=ON_REQUEST), facts)
    assert found.run.status == "passed", found.run
    pairs = [(case.scenario, case.remedy) for case in found.cases]
    assert pairs == [(name, remedy) for remedy in RACE_REMEDIES for name in ("backward", "tracing")]
