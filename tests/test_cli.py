from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from envdoctor.schemas.report import ReportDocument
from tests.environments import CUDNN, make_cuda_environment
from tests.sarif_types import Log

if TYPE_CHECKING:
    from pathlib import Path

FINDING_KEYS = {
    "check", "outcome", "severity", "culprit", "owner", "message", "evidence", "remedy",
    "suppressed",
}  # fmt: skip


def envdoctor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_version() -> None:
    done = envdoctor("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("envdoctor ")


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["explain", "--help"]])
def test_help(arguments: list[str]) -> None:
    done = envdoctor(*arguments)
    assert done.returncode == 0
    assert "Usage:" in done.stdout


def test_healthy_environment_exits_0_and_is_quiet(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    done = envdoctor("check", "--prefix", environment.prefix, "--no-gpu")
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert f"{environment.prefix} (Python 3.11.7, torch 2.10.0+cu128): no problem found" in line
    assert "\x1b" not in done.stdout


def test_damaged_environment_exits_1_and_names_file_owner_and_command(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / CUDNN).unlink()
    done = envdoctor("check", "--python", environment.prefix / "bin/python", "--no-gpu")
    assert done.returncode == 1
    assert str(environment.site / CUDNN) in done.stdout
    assert "nvidia-cudnn-cu12==9.10.2.21" in done.stdout


def test_json_report_has_its_documented_keys(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / CUDNN).unlink()
    done = envdoctor("check", "--prefix", environment.prefix, "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert set(report) == {
        "schema_version", "envdoctor_version", "environment", "summary", "findings",
    }  # fmt: skip
    assert report["schema_version"] == 1
    assert all(set(finding) == FINDING_KEYS for finding in report["findings"])
    (error,) = [item for item in report["findings"] if item["severity"] == "error"]
    assert (error["check"], error["culprit"]) == ("package-files-damaged", "nvidia-cudnn-cu12")
    assert set(error["remedy"]) == {"kind", "text", "commands"}
    assert error["evidence"][0]["found"] == "missing"
    assert {item["outcome"] for item in report["findings"]} <= {
        "ok",
        "problem",
        "skipped",
        "crashed",
    }


def test_nothing_of_the_inspected_environment_runs(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / "evil.pth").write_text(f"import os; os.mkdir({str(tmp_path / 'ran')!r})\n")
    (environment.prefix / "bin/python").write_text("")
    assert envdoctor("check", "--prefix", environment.prefix).returncode == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["check", "--prefix", "/no/such"], "/no/such", id="absent-prefix"),
        pytest.param(["check", "--python", "/no/python"], "/no/python", id="absent-python"),
        pytest.param(["check", "--profile", "nope"], "cpu, cu126", id="unknown-profile"),
        pytest.param(
            ["check", "--select", "gpu-arch"], "gpu-arch-not-in-build", id="unknown-check"
        ),
        pytest.param(["explain", "no-such-check"], "lists all checks", id="unknown-page"),
        pytest.param(["check", "--format", "xml"], "xml", id="unknown-format"),
        pytest.param(["check", "--probe", "--sysroot", "/"], "of this machine", id="probe-root"),
        pytest.param(["check", "--probe", "--facts", "x"], "of this machine", id="probe-facts"),
        pytest.param(["check", "--probe-timeout", "9"], "for --probe", id="timeout-of-nothing"),
        pytest.param(["check", "--probe", "--probe-timeout", "0"], "x>=1", id="no-time"),
        pytest.param(["check", "--ignore", "stray"], "--ignore: no check", id="unknown-ignore"),
        pytest.param(["chekc"], "chekc", id="unknown-command"),
        pytest.param(["check", "--prefix", "/", "--python", "x"], "two environments", id="two"),
    ],
)
def test_wrong_usage_exits_2_with_what_was_found_and_wanted(
    arguments: list[str], says: str
) -> None:
    done = envdoctor(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_selecting_a_check_runs_what_it_requires(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    done = envdoctor(
        "check",
        "--prefix",
        environment.prefix,
        "--select",
        "gpu-arch-not-in-build",
        "--format",
        "json",
    )
    checks = [item["check"] for item in json.loads(done.stdout)["findings"]]
    assert checks == [
        "torch-not-installed",
        "driver-library-mismatch",
        "no-nvidia-driver",
        "gpu-arch-not-in-build",
    ]


def test_ignored_problem_is_reported_and_does_not_count(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / CUDNN).unlink()
    where = ("check", "--prefix", environment.prefix, "--no-gpu", "--format", "json")
    done = envdoctor(*where, "--ignore", "package-files-damaged", "--ignore", "stray-package")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert (report["summary"]["errors"], report["summary"]["suppressed"]) == (0, 1)
    (damaged,) = [item for item in report["findings"] if item["suppressed"]]
    assert (damaged["check"], damaged["severity"]) == ("package-files-damaged", "error")
    (note,) = [item for item in report["findings"] if item["severity"] == "info"]
    assert (note["check"], note["culprit"]) == ("suppression-without-effect", "stray-package")


def test_profile_that_ignores_an_unknown_check_is_wrong(tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(
        'schema = 1\nname = "mine"\n[torch]\nversion = "2.10.0"\nvariant = "cu128"\n'
        '[check]\nignore = [{id = "strayed-package", reason = "r"}]\n'
    )
    done = envdoctor("check", "--profile", profile)
    assert done.returncode == 2
    assert "profile mine: no check is named 'strayed-package'" in done.stderr
    assert "stray-package" in done.stderr


def test_real_report_fits_the_published_types(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / CUDNN).write_bytes(b"short")
    done = envdoctor("check", "--prefix", environment.prefix, "--format", "json")
    document = msgspec.json.decode(done.stdout, type=ReportDocument)
    assert msgspec.to_builtins(document) == json.loads(done.stdout)


def test_sarif_of_a_damaged_environment_points_at_the_file(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / CUDNN).unlink()
    done = envdoctor("check", "--prefix", environment.prefix, "--no-gpu", "--format", "sarif")
    assert done.returncode == 1
    (run,) = msgspec.json.decode(done.stdout, type=Log).runs
    (result,) = run.results
    assert result.level == "error"
    place = result.locations[0].physical_location.artifact_location
    assert place.uri == f"lib/python3.11/site-packages/{CUDNN}"


def test_annotations_of_a_damaged_environment(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / CUDNN).unlink()
    done = envdoctor("check", "--prefix", environment.prefix, "--no-gpu", "--format", "github")
    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first.startswith("::error title=package-files-damaged%3A nvidia-cudnn-cu12::")
    assert last.startswith("1 error, 0 warnings")


def test_environment_of_windows_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "Lib/site-packages").mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").write_text("home = C:\\\\Python311\n")
    done = envdoctor("check", "--prefix", tmp_path)
    assert done.returncode == 2
    assert "an environment of Windows" in done.stderr


def test_torch_of_conda_is_not_called_healthy(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    info = environment.site / "torch-2.10.0.dist-info"
    (info / "INSTALLER").write_text("conda")
    (info / "RECORD").write_text(
        "\n".join(
            line for line in (info / "RECORD").read_text().splitlines() if "INSTALLER" not in line
        )
    )
    done = envdoctor("check", "--prefix", environment.prefix, "--no-gpu")
    assert done.returncode == 0
    assert "not judged   torch 2.10.0 was installed by conda" in done.stdout
    assert "no problem found in what was looked at" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["explain", "driver-too-old-for-cuda"],
        ["check", "-v", "--prefix", "ENV"],
        ["cache", "status", "--prefix", "ENV"],
        ["cache", "verify", "--format", "json", "--prefix", "ENV"],
    ],
    ids=" ".join,
)
def test_reader_that_goes_away_is_no_error(tmp_path: Path, words: list[str]) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    words = [str(environment.prefix) if word == "ENV" else word for word in words]
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "envdoctor", *words],
        env={**os.environ, "ENVDOCTOR_HOME": str(tmp_path / "home")},
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_is_one_line() -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "envdoctor", "check", "--facts", "/dev/stdin"],
        stdin=read_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.write(write_end, b"{")
    nothing = bytes(4)
    while fcntl.ioctl(read_end, termios.FIONREAD, nothing) != nothing:  # until it waits for more
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    os.close(read_end)
    os.close(write_end)
    assert (process.returncode, said) == (130, ("", "interrupted\n"))


def test_page_of_a_check() -> None:
    done = envdoctor("explain", "driver-too-old-for-cuda")
    assert done.returncode == 0
    for heading in ("What it checks", "Why it matters", "Remedy", "Source"):
        assert heading in done.stdout


def test_page_of_a_check_as_json_and_markdown() -> None:
    page = json.loads(envdoctor("explain", "stray-package", "--format", "json").stdout)
    assert set(page) == {
        "id", "family", "title", "what", "why", "remedy", "source", "requires",
        "follows_from", "reads",
    }  # fmt: skip
    assert (page["id"], page["family"]) == ("stray-package", "strays")
    text = envdoctor("explain", "stray-package", "--format", "markdown").stdout
    assert text.startswith("# stray-package\n\n")
    assert page["why"] in text


def test_list_of_checks_as_json_and_markdown() -> None:
    pages = json.loads(envdoctor("explain", "--format", "json").stdout)
    rows = envdoctor("explain", "--format", "markdown").stdout.splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [page["id"] for page in pages]


def test_output_that_does_not_fit_is_no_finding(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "envdoctor", "check", "--prefix", str(environment.prefix)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 7
    assert done.stderr.startswith("error[no-space]")
    assert "Traceback" not in done.stderr


def test_log_that_is_absent_is_named(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    done = envdoctor("check", "--prefix", environment.prefix, "--log", tmp_path / "no.log")
    assert done.returncode == 2
    assert "no.log" in done.stderr
