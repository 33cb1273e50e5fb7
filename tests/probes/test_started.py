from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import (
    AttentionProbeFact,
    ComputeProbeFact,
    CudaStartFact,
    FactSet,
    FoundLibrary,
    ImportProbeFact,
    InterpreterFact,
    LoadedLibrary,
    LoadedObject,
    LoaderFact,
    ProbeRun,
)
from envdoctor.probes import started
from envdoctor.probes.heard import Heard
from envdoctor.probes.interpreter import read_interpreter
from envdoctor.probes.subject import Probing, Subject
from tests.processes import is_alive, wait_until

SCRIPTS = Path(started.__file__).parents[1] / "probe_scripts"
WHOLE_TORCH = """
class version:
    cuda = {cuda!r}
class backends:
    class cudnn:
        @staticmethod
        def version():
            return 91002
class cuda:
    is_available = staticmethod(lambda: {available})
    device_count = staticmethod(lambda: 2)
    init = staticmethod(lambda: None)
    class nccl:
        version = staticmethod(lambda: (2, 27, 5))
__version__ = "2.10.0"
"""


def make_runnable(prefix: Path, torch: str) -> Subject:
    """Make an environment whose interpreter runs, with a torch of one file."""
    site = prefix / f"lib/python3.{sys.version_info.minor}/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").write_text(torch)
    (prefix / "bin").mkdir()
    base = Path(os.path.realpath(sys.executable))
    (prefix / "bin/python").symlink_to(base)
    version = sys.version.split()[0]
    (prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\nversion = {version}\n")
    variables = {"PATH": os.environ["PATH"]}
    return Subject(prefix=prefix, variables=variables, probing=Probing(timeout_seconds=20))


def facts_of(subject: Subject) -> FactSet:
    return FactSet([read_interpreter(subject, FactSet([]))])


def heard(log: str) -> Heard:
    found = Heard()
    for line in log.splitlines():
        found.line(line)
    return found


def imported(subject: Subject) -> ImportProbeFact:
    return started.probe_import(subject, facts_of(subject))


def test_nothing_runs_without_leave(tmp_path: Path) -> None:
    source = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    subject = replace(make_runnable(tmp_path / "env", source), probing=None)
    facts = facts_of(subject)
    for kind, probe in (
        (ImportProbeFact, started.probe_import),
        (ComputeProbeFact, started.probe_compute),
        (AttentionProbeFact, started.probe_attention),
    ):
        found = probe(subject, facts)
        assert found == kind()
        assert found.run.status == "not_run"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        pytest.param("raise ImportError('libx.so.1: no')", "failed", "ImportError: libx.so.1: no"),
        pytest.param("import nope", "failed", "ModuleNotFoundError: No module named 'nope'"),
        pytest.param("import os; os.abort()", "crashed", "SIGABRT"),
        pytest.param("import os; os.kill(os.getpid(), 7)", "crashed", "SIGBUS"),
        pytest.param("import os; os._exit(0)", "failed", "it gave no answer"),
        pytest.param("import os; print('{'); os._exit(0)", "failed", "it gave no answer"),
        pytest.param("raise SystemExit('gone')", "failed", "gone"),
        pytest.param("def (", "failed", "SyntaxError: invalid syntax"),
        pytest.param("import os; os._exit(3)", "failed", "it said nothing and ended with 3"),
        pytest.param("import os; os.write(2, b'x\\nboom'); os._exit(1)", "failed", "boom"),
    ],
)
def test_how_a_process_ends_is_a_reading(
    tmp_path: Path, source: str, status: str, reason: str
) -> None:
    run = imported(make_runnable(tmp_path, source)).run
    assert (run.status, run.reason, run.step) == (status, reason, "importing torch")


def test_steps_are_told_as_they_begin(tmp_path: Path) -> None:
    told: list[str] = []
    subject = make_runnable(tmp_path, "raise SystemExit('gone')")
    imported(replace(subject, probing=Probing(timeout_seconds=20, tell=told.append)))
    assert told == ["importing torch"]


def test_process_that_hangs_is_ended(tmp_path: Path) -> None:
    subject = make_runnable(tmp_path, "import time; time.sleep(60)")
    run = imported(replace(subject, probing=Probing(timeout_seconds=1))).run
    assert (run.status, run.reason) == ("timed_out", "did not end within 1 s")
    assert run.step == "importing torch"


WITH_A_CHILD = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path({pids!r}).write_text(str(child.pid))
{then}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_check_that_is_ended_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    prefix = tmp_path / "env"
    make_runnable(prefix, WITH_A_CHILD.format(pids=str(pids), then="time.sleep(60)"))
    next(prefix.glob("lib/*/site-packages/torch")).joinpath("version.py").touch()
    argv = [sys.executable, "-m", "envdoctor", "check", "--probe", "--prefix", str(prefix)]
    running = subprocess.Popen(argv, cwd=SCRIPTS.parents[1])
    wait_until(lambda: pids.exists() and pids.read_text())
    running.send_signal(number)
    assert running.wait(timeout=20) == 130
    assert not is_alive(int(pids.read_text()))


def test_program_that_ends_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    run = imported(
        make_runnable(tmp_path / "env", WITH_A_CHILD.format(pids=str(pids), then=""))
    ).run
    assert run.status == "failed"
    wait_until(lambda: not is_alive(int(pids.read_text())))


def test_crash_is_told_from_its_innermost_call(tmp_path: Path) -> None:
    deep = "def down(n):\n    import os\n    os.abort() if not n else down(n - 1)\ndown(80)\n"
    run = imported(make_runnable(tmp_path, deep)).run
    assert run.log.startswith("Fatal Python error: Aborted")
    assert "line 3 in down" in run.log


def test_import_that_works_is_read(tmp_path: Path) -> None:
    subject = make_runnable(tmp_path, WHOLE_TORCH.format(cuda="12.8", available=True))
    found = imported(subject)
    assert found.run == ProbeRun(status="passed", seconds=found.run.seconds, reason="")
    assert (found.torch, found.cuda, found.cuda_available) == ("2.10.0", "12.8", True)
    assert (found.num_devices, found.cudnn, found.nccl) == (2, "91002", "2.27.5")


def test_nothing_is_written_into_the_environment(tmp_path: Path) -> None:
    subject = make_runnable(tmp_path / "env", WHOLE_TORCH.format(cuda=None, available=False))
    before = sorted(tmp_path.rglob("*"))
    assert imported(subject).run.status == "passed"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        pytest.param(ImportProbeFact(run=ProbeRun(status="crashed")), "torch does not import"),
        pytest.param(ImportProbeFact(run=ProbeRun(status="passed")), "torch sees no GPU"),
    ],
)
def test_programs_for_gpus_do_not_start_without(
    tmp_path: Path, told: ImportProbeFact, reason: str
) -> None:
    subject = make_runnable(tmp_path, "")
    facts = facts_of(subject).having(told)
    for probe in (started.probe_compute, started.probe_all_reduce, started.probe_attention):
        run = probe(subject, facts).run
        assert (run.status, run.reason) == ("skipped", reason)


def test_environment_without_interpreter_is_skipped(tmp_path: Path) -> None:
    subject = make_runnable(tmp_path, "")
    (tmp_path / "bin/python").unlink()
    assert imported(subject).run.status == "skipped"


def test_interpreter_that_cannot_start_is_a_failure(tmp_path: Path) -> None:
    subject = make_runnable(tmp_path, "")
    (tmp_path / "bin/python").unlink()
    (tmp_path / "bin/python").write_bytes(b"\x7fELF")
    assert "it is not executable" in imported(subject).run.reason
    (tmp_path / "bin/python").chmod(0o755)
    assert imported(subject).run.status == "failed"


def test_answer_of_another_shape_is_a_failure(tmp_path: Path) -> None:
    text = json.dumps({"torch": 3})
    source = f"import os\nprint({text!r}, flush=True)\nos._exit(0)\n"
    run = imported(make_runnable(tmp_path, source)).run
    assert run.status == "failed"
    assert "Expected `str`, got `int` - at `$.torch`" in run.reason


def test_start_of_cuda_is_taken_from_the_import(tmp_path: Path) -> None:
    subject = Subject(prefix=tmp_path)
    told = ImportProbeFact(driver_code=803, driver_name="CUDA_ERROR_X", runtime_code=35)
    assert started.read_cuda_start(subject, FactSet([told])) == CudaStartFact(
        code=803, name="CUDA_ERROR_X", runtime_code=35
    )
    assert started.read_cuda_start(subject, FactSet([ImportProbeFact()])) == CudaStartFact()


@pytest.mark.parametrize(
    ("loaded", "predicted", "expected"),
    [
        pytest.param(
            "/e/libcudnn.so.9",
            {"libcudnn.so.9": "/e/libcudnn.so.9"},
            LoadedLibrary(
                name="libcudnn.so.9", path="/e/libcudnn.so.9", predicted="/e/libcudnn.so.9"
            ),
            id="where-it-should-be",
        ),
        pytest.param(
            "/usr/lib/libcudnn.so.9.1.0",
            {"libcudnn.so.9": "/e/libcudnn.so.9"},
            LoadedLibrary(
                name="libcudnn.so.9",
                path="/usr/lib/libcudnn.so.9.1.0",
                predicted="/e/libcudnn.so.9",
            ),
            id="from-elsewhere-with-more-version",
        ),
        pytest.param(
            "/usr/lib/libcuda.so.580.65.06",
            {},
            LoadedLibrary(name="libcuda.so.580.65.06", path="/usr/lib/libcuda.so.580.65.06"),
            id="cuda-unforetold",
        ),
        pytest.param("/usr/lib/libz.so.1", {}, None, id="of-no-interest"),
        pytest.param("/e/libcudnn_ops.so.9", {"libcudnn.so.9": "/e/l"}, "", id="other-name"),
    ],
)
def test_loaded_libraries_beside_predicted_ones(
    loaded: str, predicted: dict[str, str], expected: LoadedLibrary | str | None
) -> None:
    found = started.paired([loaded], predicted)
    if expected == "":
        assert [item.predicted for item in found] == [""]
    else:
        assert found == ((expected,) if expected else ())


def test_predictions_come_from_the_loader_fact(tmp_path: Path) -> None:
    subject = make_runnable(tmp_path, WHOLE_TORCH.format(cuda=None, available=False))
    maps = Path("/proc/self/maps").read_text().splitlines()
    libc = next(line.split()[-1] for line in maps if "/libc.so.6" in line)
    foretold = LoadedObject(found=FoundLibrary(name="c", path=libc), soname="c")
    facts = facts_of(subject).having(LoaderFact(objects=(foretold,)))
    found = started.probe_import(subject, facts)
    assert LoadedLibrary(name="c", path=libc, predicted=libc) in found.libraries


@given(st.text(st.characters(codec="utf-8")))
def test_reason_of_any_log_is_short_and_one_line(log: str) -> None:
    reason = heard(log).reason
    assert len(reason) <= 500
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("Traceback\n  x\nOSError: [Errno 5] a\n", "OSError: [Errno 5] a", id="plain"),
        pytest.param(
            "RuntimeError: a\nDuring handling\nValueError: b\n  hint: c\n",
            "ValueError: b   hint: c",
            id="the-last-of-several-with-its-lines",
        ),
        pytest.param(
            "torch._inductor.exc.InductorError: CalledProcessError: gcc\n",
            "torch._inductor.exc.InductorError: CalledProcessError: gcc",
            id="of-a-module",
        ),
        pytest.param("warning: x\nkilled\nprobe-step: y\n", "killed", id="no-exception"),
    ],
)
def test_reason_is_what_the_exception_says(log: str, reason: str) -> None:
    assert heard(log).reason == reason


def test_real_torch_imports_from_where_the_files_foretell() -> None:
    pytest.importorskip("torch")
    subject = Subject(
        prefix=Path(sys.prefix), variables=dict(os.environ), probing=Probing(timeout_seconds=120)
    )
    found = imported(subject)
    assert found.run.status == "passed", found.run.log
    assert any(item.name.startswith("libtorch_cpu.so") for item in found.libraries)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        pytest.param("compute", ["cpu"], id="compute"),
        pytest.param("all_reduce", ["gloo", "2", "60"], id="all-reduce"),
        pytest.param("compiled_attention", ["cpu", "eager"], id="attention"),
        pytest.param("compiled_attention", ["cpu"], id="compiled-attention"),
    ],
)
def test_program_for_gpus_runs_on_the_cpu_as_well(program: str, arguments: list[str]) -> None:
    pytest.importorskip("torch")
    subject = Subject(
        prefix=Path(sys.prefix), variables=dict(os.environ), probing=Probing(timeout_seconds=240)
    )
    run, answer = started.start(program, *arguments, subject=subject, facts=facts_of(subject))
    assert run.status == "passed", run.log
    if program == "compute":
        done = [item for item in answer["operations"] if item["status"] == "passed"]
        assert [item["name"] for item in done] == ["matmul", "convolution"]
        assert all(item["distance"] < 0.001 for item in done)
    if program == "all_reduce":
        assert answer["num_ranks"] == 2
    if program == "compiled_attention":
        assert all(item["distance"] < 0.01 for item in answer["cases"])


def test_environment_of_another_python_is_read(tmp_path: Path) -> None:
    interpreter = read_interpreter(make_runnable(tmp_path, ""), FactSet([]))
    assert isinstance(interpreter, InterpreterFact)
    assert interpreter.python == str(tmp_path / "bin/python")
