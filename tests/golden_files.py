"""Reports in every form; `python -m tests.golden_files` writes tests/golden anew."""

from __future__ import annotations

import io
import json
from pathlib import Path

from envdoctor import __version__
from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.formats.github import workflow_commands
from envdoctor.formats.sarif import to_sarif
from envdoctor.render import report_lines, show
from envdoctor.report import Finding, Report
from envdoctor.verdict import Crashed, Evidence, Ok, Problem, Remedy, Severity, Skipped

FOLDER = Path(__file__).parent / "golden"
PREFIX = "/srv/env one"
SHADOWED_CUDNN = Problem(
    culprit="nvidia-cudnn-cu12",
    message="2 recorded files of nvidia-cudnn-cu12 9.10.2.21 are damaged",
    evidence=(
        Evidence(
            subject=f"{PREFIX}/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
            expected="123 bytes",
            found="missing",
        ),
        Evidence(subject="/opt/na\udcefve.so", expected="", found="a FIFO"),
    ),
    remedy=Remedy(
        kind="reinstall-package",
        text="Reinstall it; without force the installer says it is already satisfied.",
        commands=("uv pip install --reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21",),
    ),
)
STRAY = Problem(
    culprit="sglang",
    severity=Severity.WARNING,
    message="sglang 0.5, an engine, is installed: 100%\n::error::not a command\x1b[31m",
    remedy=Remedy(kind="remove-leftover", text="Uninstall it, then check again."),
)
SMALL_SHM = Problem(
    culprit="/dev/shm",
    severity=Severity.INFO,
    owner="image",
    message="/dev/shm has 64 MiB; several processes want 1 GiB",
    remedy=Remedy(kind="container-option", text="Start the container with --shm-size=8g."),
)


def environment(**changes: object) -> dict[str, object]:
    """Return the heading of a report on a machine with one GPU."""
    values: dict[str, object] = {
        "prefix": PREFIX,
        "python": "3.11.7",
        "packages": 28,
        "torch": "2.10.0+cu128",
        "cuda": "12.8",
        "arch": ["sm_90", "sm_120"],
        "driver": "580.65.06",
        "gpus": ["NVIDIA H200 (9.0)"],
        "host": {
            "machine": "x86_64",
            "kernel": "6.1.0",
            "glibc": "2.36",
            "shm_bytes": 64 * 1024**2,
            "disk_free_bytes": None,
        },
        "loaded": None,
        "not_judged": [],
    }
    return values | changes


def broken() -> Report:
    """Return a report that holds every kind of finding."""
    return Report(
        environment=environment(
            loaded=[f"{PREFIX}/lib/libcudnn.so.9", "/usr/lib/libcuda.so.580.65.06"],
            not_judged=["WSL2: the driver is not looked at"],
        ),
        findings=(
            Finding(check="torch-not-installed", outcome=Ok("torch 2.10.0+cu128")),
            Finding(check="torch-not-of-profile", outcome=Skipped("no profile was named")),
            Finding(check="shared-memory-too-small", outcome=SMALL_SHM),
            Finding(check="stray-package", outcome=STRAY),
            Finding(check="package-files-damaged", outcome=SHADOWED_CUDNN),
            Finding(check="driver-too-old-for-cuda", outcome=Ok("driver 580.65.06 is fine")),
            Finding(check="disk-almost-full", outcome=STRAY, suppressed="known since May"),
            Finding(check="stray-module", outcome=Crashed("KeyError: 'x'")),
        ),
        required=frozenset({"torch-not-of-profile"}),
    )


def healthy() -> Report:
    """Return a report without a problem."""
    return Report(
        environment=environment(),
        findings=(
            Finding(check="torch-not-installed", outcome=Ok("torch 2.10.0+cu128")),
            Finding(check="torch-not-of-profile", outcome=Skipped("no profile was named")),
        ),
    )


def forms() -> dict[str, str]:
    """Return the text of every golden file by its name."""
    log = to_sarif(broken(), BUILTIN_CHECKS)
    for rule in log["runs"][0]["tool"]["driver"]["rules"]:
        # the pages have a test of their own and change more often
        short = {"text": "..."}
        rule |= {"shortDescription": short, "fullDescription": short, "help": short}
    found = {
        "broken.txt": _text(broken()),
        "broken-verbose.txt": _text(broken(), verbose=True),
        "broken.json": json.dumps(broken().to_dict(), indent=2),
        "broken.sarif": json.dumps(log, indent=2),
        "broken.github.txt": "\n".join(workflow_commands(broken())),
        "healthy.txt": _text(healthy()),
        "healthy-verbose.txt": _text(healthy(), verbose=True),
    }
    version = f'version": "{__version__}"'
    return {name: text.replace(version, 'version": "X.Y.Z"') for name, text in found.items()}


def _text(report: Report, *, verbose: bool = False) -> str:
    stream = io.StringIO()
    show(report_lines(report, verbose=verbose), stream)
    return stream.getvalue()


if __name__ == "__main__":
    for name, text in forms().items():
        (FOLDER / name).write_text(text.rstrip("\n") + "\n")
