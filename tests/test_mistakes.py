"""What users get wrong on the command line: a line that names it, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envdoctor import user_files
from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.errors import UserFileError
from envdoctor.runner import unknown_check
from envdoctor.torch_index import index_option, is_published

ROOT = Path(__file__).parent.parent
RUN_FILE = str(ROOT / "train/runs/smollm2-cpu.toml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are none, too large, or of another kind, with blanks in the path."""
    path = tmp_path_factory.mktemp("my files")
    os.mkfifo(path / "fifo.toml")
    (path / "folder.toml").mkdir()
    with (path / "huge.toml").open("wb") as stream:
        stream.truncate(3 * 1024**3)
    (path / "binary.toml").write_bytes(b"\0\1\2\xff")
    (path / "secret.toml").write_text('[[index]]\nurl = ["http://joe:pw@h/"]')
    (path / "no.program").write_text("x")
    (path / "bare/lib/python3.11").mkdir(parents=True)
    return path


def envdoctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", *(one.replace("@", f"{folder}/") for one in arguments)],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(folder / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


MISTAKES = [
    (["build", "--profile", "@fifo.toml"], 2, ["fifo.toml: it is a pipe; a file is wanted"]),
    (["check", "--profile", "@folder.toml"], 2, ["folder.toml: it is a folder"]),
    (["profiles", "validate", "@huge.toml"], 2, ["huge.toml: it is larger than 1 MiB"]),
    (["build", "--profile", "/dev/zero"], 2, ["/dev/zero: it is a device"]),
    (["lock", "--profile", "@binary.toml"], 2, ["binary.toml: not valid TOML"]),
    (["lock", "--profile", "@none.toml"], 2, ["none.toml: no such file"]),
    (["lock", "--profile", "@a\x1b[2Jb.toml"], 2, ["a\\x1b[2Jb.toml: no such file"]),
    (["profiles", "validate", "@secret.toml"], 2, ["url: found ['http://****@h/'], wanted text"]),
    (["build", "--profile", "cu218"], 2, ["no profile is named 'cu218'", "did you mean cu128?"]),
    (["build", "--profile", ""], 2, ["--profile: found nothing, wanted a value"]),
    (["check", "--prefix="], 2, ["--prefix: found nothing, wanted a value"]),
    (["train", "--config", ""], 2, ["--config: found nothing"]),
    (["train", "--config", "@fifo.toml"], 2, ["fifo.toml: it is a pipe"]),
    (["train", "--config", RUN_FILE, "--env", "@bare"], 2, ["there is no bin/python in it"]),
    (["train", "--config", RUN_FILE, "--env", "/etc"], 2, ["no Python environment"]),
    (["check", "--python", "@no.program"], 2, ["it is not executable"]),
    (["check", "--python", "@folder.toml"], 2, ["a folder that holds no environment"]),
    (["check", "--probe", "--probe-timeout", "nan"], 2, ["found nan, wanted seconds"]),
    (["check", "--probe", "--probe-timeout", "inf"], 2, ["found inf, wanted seconds"]),
    (["check", "--config", "@fifo.toml"], 2, ["fifo.toml: it is a pipe; a file is wanted"]),
    (["check", "--config", "@folder.toml"], 2, ["folder.toml: it is a folder; a file is wanted"]),
    (["check", "--config", "@binary.toml"], 2, ["binary.toml: not valid TOML: "]),
    (["check", "--config", "@none.toml"], 2, ["none.toml: no such file"]),
    (["check", "--log", "@fifo.toml"], 2, ["fifo.toml: it is a pipe; a file is wanted"]),
    (["check", "--log", "@none.log"], 2, ["none.log: no such file"]),
    (["check", "--facts", "@folder.toml"], 2, ["folder.toml: it is a folder; a file is wanted"]),
    (["build", "--python", "@no.program"], 9, ["no.program: it is not executable"]),
    (["build", "--uv", "@folder.toml"], 9, ["folder.toml, which is a folder"]),
    (["build", "--uv", "@none"], 9, ["none, which is not there"]),
    (["check", "--select", "drivr-too-old-for-cuda"], 2, ["did you mean driver-too-old-for-cuda"]),
    (["explain", "torch"], 2, ["did you mean "]),
    (["check", "--ignore", "zzz"], 2, ["`envdoctor explain` lists all checks"]),
    (["diff", "@none", "@binary.toml"], 2, ["none: no such file", "binary.toml: not JSON"]),
    (["diff", "@none", ""], 2, ["found an empty argument, wanted a value"]),
    (["envs", "list", "--profile", "nope"], 2, ["no profile is named 'nope'"]),
    (["rollback"], 1, ["no environment is built in ", "envdoctor build --profile cpu"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "words"), MISTAKES, ids=[" ".join(words) for words, *_ in MISTAKES]
)
def test_mistake_is_named_in_a_line(
    folder: Path, arguments: list[str], code: int, words: list[str]
) -> None:
    done = envdoctor(folder, *arguments)
    assert done.returncode == code, done.stderr
    assert not [word for word in words if word not in done.stderr], done.stderr
    assert "Errno" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error[")]
    assert len(errors) == 1


def test_nothing_built_is_said_and_is_no_error(folder: Path) -> None:
    done = envdoctor(folder, "envs")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is built in" in done.stderr
    assert envdoctor(folder, "envs", "list", "--format", "json").stdout == "[]\n"


def test_arguments_of_another_program_may_be_empty(folder: Path) -> None:
    done = envdoctor(folder, "run", "--", "python", "")
    assert "no environment is built" in done.stderr


def test_home_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "home.file").write_text("x")
    for arguments in (["build"], ["adopt", sys.prefix], ["lock"]):
        done = subprocess.run(
            [sys.executable, "-m", "envdoctor", *arguments],
            cwd=ROOT,
            env={**os.environ, "ENVDOCTOR_HOME": str(folder / "home.file")},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 7, done.stderr
        assert "error[home-not-writable]: cannot make folders in " in done.stderr


def test_unknown_id_is_answered_with_few_names() -> None:
    known = [item.id for item in BUILTIN_CHECKS]
    for name in ("cuda", "torch_version_disagree", "DRIVER", "no-nvidia"):
        hint = unknown_check(name, known).hint
        assert hint.startswith("did you mean ")
        assert hint.count(",") <= 4


def test_file_is_read_to_its_limit_from_streams_as_well(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x" * 100)
    os.close(writer)
    path = Path(f"/dev/fd/{reader}")
    assert user_files.read(path, reference="x", may_be_stream=True) == b"x" * 100
    os.close(reader)
    with pytest.raises(UserFileError, match="larger than 1 MiB"):
        user_files.read(Path("/dev/zero"), reference="x", may_be_stream=True)
    (tmp_path / "f").write_bytes(b"y")
    assert user_files.read(tmp_path / "f", reference="x") == b"y"


@pytest.mark.parametrize(
    ("version", "index", "published"),
    [
        ("2.10.0+cu128", "whl/cu128 ", True),
        ("2.10.0", "", True),
        ("2.16.0.dev20261101+cu132", "whl/nightly/cu132 ", True),
        ("2.8.0a0+5228986c39.nv25.5", "", False),
        ("2.8.0+git1234", "", False),
        ("2.9.0rc3+cpu", "whl/cpu ", True),
    ],
)
def test_index_that_holds_a_build(version: str, index: str, *, published: bool) -> None:
    assert index_option(version).endswith(index)
    assert bool(index_option(version)) == bool(index)
    assert is_published(version) is published
