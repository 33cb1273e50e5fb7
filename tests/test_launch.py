"""The launcher: which environment, which gate, and what reaches the trainer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envdoctor import launch, profile, resources, settings
from envdoctor.errors import (
    ExitCode,
    ToolError,
    UsageError,
    UserFileError,
    VerificationError,
)
from envdoctor.launch import Place
from envdoctor.resources import trainer_module
from envdoctor.talk import Event, silent
from envdoctor.train_request import TrainRequest
from envdoctor.verify import UnfitEnvironmentError
from tests.tiny_wheels import make_wheel
from tests.workbench import ROOT, Bench

if TYPE_CHECKING:
    from collections.abc import Callable

# Stands in for the trainer's own modules, which need packages that no tiny environment has: Python
# runs it before anything else. It writes down how it was started.
SPY = """
import json, os, signal, sys, time
path = os.environ.get("SPY")
if path:
    keys = ("PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PATH", "PYTHONSAFEPATH")
    found = {"argv": sys.orig_argv[1:], "prefix": sys.prefix, "cwd": os.getcwd(),
             "variables": {key: os.environ.get(key) for key in keys}}
    def stop(*_):
        os._exit(130)
    signal.signal(signal.SIGTERM, stop)
    with open(path + ".tmp", "w") as stream:
        json.dump(found, stream)
    os.replace(path + ".tmp", path)
    time.sleep(float(os.environ.get("SPY_SECONDS", "0")))
    os._exit(7)
"""

RUN_FILE = """
name = "tiny"
[target]
path = "package:tiny/model.gguf"
[draft]
mask_token_id = 1
[data]
train = "train.jsonl"
held_out = "held.jsonl"
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path)
    make_wheel(found.wheels, "alpha", "1.0", files={"sitecustomize.py": SPY, "alpha.py": ""})
    for name in ("train", "held"):
        (tmp_path / f"{name}.jsonl").write_text("{}\n")
    (tmp_path / "run.toml").write_text(RUN_FILE)
    return found


def request(bench: Bench, **changes: object) -> TrainRequest:
    return TrainRequest(config=bench.folder / "run.toml", **changes)  # type: ignore[arg-type]


def variables_of(bench: Bench, **more: str) -> settings.Settings:
    return settings.load(
        {
            **os.environ,
            "ENVDOCTOR_HOME": str(bench.home),
            "SPY": str(bench.folder / "spy.json"),
            "LD_LIBRARY_PATH": "/nowhere",
            **more,
        }
    )


def test_trainer_runs_in_the_real_folder_of_the_newest_environment(bench: Bench) -> None:
    built = bench.build(bench.write())
    events: list[Event] = []
    wanted = request(bench, out=Path("/some/run"), extra=("--more",))
    assert launch.train(wanted, settings=variables_of(bench), talk=events.append) == 7
    found = json.loads((bench.folder / "spy.json").read_text())
    assert found["argv"] == [
        *("-m", "train", "--config", str(bench.folder / "run.toml")),
        *("--out", "/some/run", "--more"),
        *("--receipt", built.receipt.id),
    ]
    assert (found["prefix"], found["cwd"]) == (str(built.path), str(Path.cwd()))
    assert found["variables"]["PYTHONPATH"] == str(resources.bundled("train").parent)
    assert found["variables"]["LD_LIBRARY_PATH"] is None
    assert found["variables"]["VIRTUAL_ENV"] == str(built.path)
    assert found["variables"]["PATH"].startswith(f"{built.path}/bin:")
    assert found["variables"]["PYTHONSAFEPATH"] == "1"
    assert "profile tiny, the newest that was built" in events[0].text
    assert "LD_LIBRARY_PATH" in events[1].text


def test_run_is_resumed_from_its_folder_alone(bench: Bench) -> None:
    built = bench.build(bench.write())
    folder = bench.folder / "run"
    config = trainer_module("config").load_config(bench.folder / "run.toml")
    trainer_module("run_folder").RunFolder.create(config, folder)
    wanted = TrainRequest(resume=folder, extra=("--allow-data-change",))
    assert launch.train(wanted, settings=variables_of(bench), talk=silent) == 7
    found = json.loads((bench.folder / "spy.json").read_text())
    assert found["argv"] == [
        *("-m", "train", "--resume", str(folder), "--allow-data-change"),
        *("--receipt", built.receipt.id),
    ]


def test_settings_reach_the_trainer_and_are_checked_before(bench: Bench) -> None:
    bench.build(bench.write())
    changes = ("train.epochs=3", 'data.train="train.jsonl"')
    wanted = request(bench, changes=("data.max_length=64", "data.buckets=[64]"))
    assert launch.train(wanted, settings=variables_of(bench), talk=silent) == 7
    found = json.loads((bench.folder / "spy.json").read_text())
    assert found["argv"][4:6] == ["--set=data.max_length=64", "--set=data.buckets=[64]"]
    with pytest.raises(UserFileError, match=r"data\.train: no file at"):
        launch.train(request(bench, changes=changes), settings=variables_of(bench), talk=silent)
    with pytest.raises(UserFileError, match=r"--set train\.epochs: found 0, wanted"):
        launch.train(
            request(bench, changes=("train.epochs=0",)), settings=variables_of(bench), talk=silent
        )


def test_fields_need_no_environment(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = TrainRequest(command=("fields",))
    assert launch.train(wanted, settings=variables_of(bench), talk=silent) == 0
    assert "train.epochs: a whole number at least 1; default 6" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(lambda folder: None, "found nothing there", id="missing"),
        pytest.param(lambda folder: folder.mkdir(), "found no folder of a run", id="empty"),
        pytest.param(
            lambda folder: (folder.mkdir(), (folder / "config.json").write_text("{}")),
            r"config\.json: data: missing",
            id="no-config",
        ),
    ],
)
def test_folder_that_cannot_be_resumed_is_refused_before_any_environment(
    bench: Bench, make: Callable[[Path], object], problem: str
) -> None:
    make(bench.folder / "run")
    with pytest.raises(UserFileError, match=problem):
        launch.train(
            TrainRequest(resume=bench.folder / "run"), settings=variables_of(bench), talk=silent
        )


def test_sub_command_reaches_the_trainer_as_it_was_written(bench: Bench) -> None:
    bench.build(bench.write())
    command = ("regenerate", "--prompts", "a b.jsonl", "--", "--out")
    wanted = TrainRequest(command=command)
    assert launch.train(wanted, settings=variables_of(bench), talk=silent) == 7
    found = json.loads((bench.folder / "spy.json").read_text())
    assert found["argv"] == ["-m", "train", *command]


def test_sub_command_passes_the_same_gate(bench: Bench) -> None:
    wanted = TrainRequest(command=("regenerate",))
    with pytest.raises(VerificationError, match="no environment is built"):
        launch.train(wanted, settings=variables_of(bench), talk=silent)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], ["--config FILE, --resume RUN or a sub-command"], id="nothing"),
        pytest.param(["regenerat"], ["'regenerat'", "did you mean regenerate?"], id="near"),
        pytest.param(["xyz"], ["'xyz'", "there are: ", "regenerate"], id="unknown"),
        pytest.param(["--config", "x", "regenerate"], ["--config", "behind it"], id="config"),
        pytest.param(
            ["regenerate", "--env=x"], ["--env", "envdoctor train --env ... regenerate"], id="env"
        ),
    ],
)
def test_what_no_environment_could_run_is_refused_before_the_gate(
    tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    code, stderr = command_line(tmp_path, *arguments)
    assert code == ExitCode.USAGE
    assert all(word in stderr for word in words), stderr
    assert stderr.count("\n") <= 2


def test_help_of_a_sub_command_needs_no_environment(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "envdoctor", "train", "regenerate", "--help"],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--prompts" in found.stdout


def test_help_names_every_sub_command(tmp_path: Path) -> None:
    commands = resources.trainer_module("commands").COMMANDS
    for module in ("envdoctor", "train"):
        arguments = ["train", "--help"] if module == "envdoctor" else ["--help"]
        found = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "ENVDOCTOR_HOME": str(tmp_path), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert all(name in found.stdout for name in commands), module


def command_line(home: Path, *arguments: str) -> tuple[int, str]:
    found = subprocess.run(
        [sys.executable, "-m", "envdoctor", "train", *arguments],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""
    return found.returncode, found.stderr


def test_named_environments_are_taken(bench: Bench) -> None:
    path = bench.write()
    built = bench.build(path)
    for changes in ({"profile": path}, {"env": bench.current}, {"env": built.path}):
        place = launch.choose(request(bench, **changes), variables_of(bench))
        assert place.env == built.path
        assert place.profile is not None
        assert place.profile.name == "tiny"
        assert place.store is not None


@pytest.mark.parametrize(
    ("torch_version", "words"),
    [
        pytest.param("2.11.0+cu130", "refused: torch 2.11.0+cu130 keeps one flag", id="affected"),
        pytest.param("2.14.1+cu130", "threads, which is not supported", id="not-affected"),
        pytest.param(None, "refused: torch before 2.14 keeps one flag", id="no-torch"),
    ],
)
def test_layout_of_threads_is_refused_before_the_gate(
    bench: Bench, tmp_path: Path, torch_version: str | None, words: str
) -> None:
    env = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    if torch_version:
        package = next(env.glob("lib/python3*/site-packages")) / "torch"
        package.mkdir()
        (package / "version.py").write_text(f"__version__ = {torch_version!r}\n")
    run_file = bench.folder / "run.toml"
    run_file.write_text(RUN_FILE + '[layout]\nmode = "threads"\n')
    with pytest.raises(UserFileError, match=re.escape(words)) as caught:
        launch.train(request(bench, env=env), settings=variables_of(bench), talk=silent)
    assert caught.value.message.startswith(f"{run_file}: layout.mode: found threads")
    assert "\n" not in caught.value.message


def test_environment_from_elsewhere_has_no_profile(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    place = launch.choose(request(bench, env=other), variables_of(bench))
    assert (place.env, place.profile, place.store) == (other.resolve(), None, None)


@pytest.mark.parametrize(
    ("name", "command"), [(None, "--profile cpu"), ("cu128", "--profile cu128")]
)
def test_nothing_built_names_the_command_that_builds(
    bench: Bench, name: str | None, command: str
) -> None:
    with pytest.raises(VerificationError) as caught:
        launch.choose(request(bench, profile=name), variables_of(bench))
    assert caught.value.exit_code == ExitCode.PROBLEM
    assert f"envdoctor build {command}" in caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_path_that_is_no_environment_is_a_usage_error(bench: Bench, kind: str) -> None:
    path = bench.folder / "x"
    if kind == "file":
        path.touch()
    elif kind == "empty":
        path.mkdir()
    with pytest.raises(UsageError) as caught:
        launch.choose(request(bench, env=path), variables_of(bench))
    assert caught.value.exit_code == ExitCode.USAGE


def test_environment_that_does_not_pass_is_refused_with_its_report(bench: Bench) -> None:
    built = bench.build(bench.write())
    file = next(built.path.glob("lib/python*/site-packages/torch/version.py"))
    file.write_text("__version__ = '9.9.0+cu128'\ncuda = '12.8'\n")
    with pytest.raises(UnfitEnvironmentError) as caught:
        launch.train(request(bench), settings=variables_of(bench), talk=silent)
    assert caught.value.exit_code == ExitCode.PROBLEM
    assert caught.value.report is not None
    assert caught.value.report.problems()
    assert not (bench.folder / "spy.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(("[draft]", "[draf]"), ["run.toml", "draf: unknown key"], id="unknown-key"),
        pytest.param(("_id = 1", '_id = "x"'), ["draft.mask_token_id", "'x'"], id="wrong-type"),
        pytest.param(
            ("train.jsonl", "gone.jsonl"), ["data.train", "gone.jsonl"], id="missing-data"
        ),
        pytest.param(("[data]", "[data"), ["run.toml", "TOML"], id="no-toml"),
    ],
)
def test_run_file_is_validated_before_the_environment(
    bench: Bench, change: tuple[str, str], words: list[str]
) -> None:
    (bench.folder / "run.toml").write_text(RUN_FILE.replace(*change))
    with pytest.raises(UserFileError) as caught:
        launch.train(request(bench), settings=variables_of(bench), talk=silent)
    assert caught.value.exit_code == ExitCode.USAGE
    assert all(word in caught.value.message for word in words), caught.value.message


def test_missing_run_file_is_a_user_file_error(bench: Bench) -> None:
    (bench.folder / "run.toml").unlink()
    with pytest.raises(UserFileError, match=r"run\.toml"):
        launch.train(request(bench), settings=variables_of(bench), talk=silent)


def test_validating_a_run_file_imports_no_torch(bench: Bench) -> None:
    code = (
        "import sys, pathlib; from envdoctor.train_request import TrainRequest, require_run\n"
        f"require_run(TrainRequest(config=pathlib.Path({str(bench.folder / 'run.toml')!r})))\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_profile_says_which_variables_are_set_and_dropped() -> None:
    wanted = profile.Profile(
        schema=1,
        name="p",
        torch=profile.TorchSection(version="1.0", variant="cpu"),
        env=profile.VariablesSection(set={"OMP_NUM_THREADS": "4"}, forbid=("BAD",)),
    )
    present = {"BAD": "1", "GOOD": "2", "LD_LIBRARY_PATH": "/l", "VIRTUAL_ENV": "/v", "PATH": "/b"}
    kept, dropped = launch.inherited(present, wanted)
    assert (kept, dropped) == ({"GOOD": "2", "LD_LIBRARY_PATH": "/l", "PATH": "/b"}, ("BAD",))
    place = Place(env=Path("/e"), profile=wanted, store=None, origin="")
    found = launch.variables(place, kept)
    assert found["OMP_NUM_THREADS"] == "4"
    assert found["PATH"] == "/e/bin:/b"


def test_environment_without_interpreter_is_a_tool_error(bench: Bench) -> None:
    with pytest.raises(ToolError, match="no such interpreter"):
        launch.argv(bench.folder, request(bench))


def test_environment_of_a_running_job_outlives_rebuilds(bench: Bench) -> None:
    path = bench.write()
    first = bench.build(path)
    code = (
        "import sys; from pathlib import Path\n"
        "from envdoctor import launch, settings, talk, train_request\n"
        f"wanted = train_request.TrainRequest(config=Path({str(bench.folder / 'run.toml')!r}))\n"
        "sys.exit(launch.train(wanted, settings=settings.load(), talk=talk.silent))"
    )
    spy = bench.folder / "spy.json"
    job = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=dict(variables_of(bench, SPY_SECONDS="60").variables),
    )
    deadline = time.monotonic() + 20
    while not spy.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(3):
        bench.build(path, force=True)
    assert first.path.exists()
    assert "a job runs in it" in bench.notes
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=20) == ExitCode.INTERRUPTED
    bench.build(path, force=True)
    assert not first.path.exists()
