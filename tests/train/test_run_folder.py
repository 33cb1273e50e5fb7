"""What is refused of a run's folder before anything is loaded, and what files can do to a run."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from tests.train.tiny_run import write_run
from tests.train.trained_run import write_trained_run
from train.__main__ import main
from train.exit_codes import exit_code_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "name",
    [
        "baseline.json",
        "metrics.jsonl",
        "summary.json",
        "report.html",
        "checkpoints/latest",
        "checkpoints/best",
    ],
)
def test_folder_in_the_place_of_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run = write_trained_run(tmp_path)
    (run / name).mkdir(parents=True)
    assert main(["--resume", str(run)]) == 2
    problem = f"error: {run / name}: found a folder, wanted a file; move it away\n"
    assert problem in capsys.readouterr().err


def test_file_in_the_place_of_the_checkpoints_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_trained_run(tmp_path)
    (run / "checkpoints").write_text("x")
    assert main(["--resume", str(run)]) == 2
    problem = f"error: {run / 'checkpoints'}: found a file, wanted a folder; move it away\n"
    assert capsys.readouterr().err.endswith(problem)


def test_copy_of_a_checkpoint_in_the_place_of_the_link_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_trained_run(tmp_path)
    (run / "checkpoints").mkdir()
    assert main(["--resume", str(run)]) == 2
    assert f"error: {run / 'checkpoint'}: found a folder, wanted a link" in capsys.readouterr().err


def test_new_run_in_a_folder_that_holds_a_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file, out = write_run(tmp_path), tmp_path / "out"
    (out / "baseline.json").mkdir(parents=True)
    assert main(["--config", str(run_file), "--out", str(out)]) == 2
    assert f"error: {out / 'baseline.json'}: found a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "option"), [("evaluate", "--json"), ("warm", "--report")], ids=["evaluate", "warm"]
)
def test_output_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, option: str
) -> None:
    run = write_trained_run(tmp_path)
    subject = [str(run)] if command == "evaluate" else ["--config", str(tmp_path / "run.toml")]
    for place, problem in ((run, "found a folder"), (run / "no" / "x", "no such folder")):
        assert main([command, *subject, option, str(place)]) == 2
        assert f"error: {option} {place}: {problem}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(IsADirectoryError(errno.EISDIR, "x"), 2, id="folder"),
        pytest.param(PermissionError(errno.EACCES, "x"), 2, id="permission"),
        pytest.param(OSError(errno.ENOSPC, "x"), 7, id="full"),
        pytest.param(OSError(errno.EROFS, "x"), 7, id="read-only"),
        pytest.param(FileNotFoundError(errno.ENOENT, "x"), None, id="missing"),
        pytest.param(ValueError("x"), None, id="no-file"),
    ],
)
def test_exit_code_of_what_files_are_to_blame_for(error: Exception, code: int | None) -> None:
    assert exit_code_of(error) == code


def test_name_that_no_file_can_have_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody looks for this one: whatever files are to blame for ends at the edge."""
    run, name = write_trained_run(tmp_path), "n" * 300
    assert main(["evaluate", str(run), "--json", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line == f"error: [Errno {errno.ENAMETOOLONG}] File name too long: '{name}'"
