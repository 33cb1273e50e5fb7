"""Repairs: real environments, real uv, a folder of tiny wheels in place of the network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envdoctor import uv
from envdoctor.settings import load
from tests.tiny_wheels import make_wheel

ROOT = Path(__file__).parents[1]
HEADER = "nvidia/nccl/include/nccl.h"
TORCH = {
    "torch/__init__.py": "",
    "torch/version.py": "__version__ = '2.10.0+cpu'\ncuda = None\n",
}


class Bench:
    """An environment with a torch and an NVIDIA package, and the wheels it was made of."""

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / "env"
        self.wheels = folder / "wheels"
        make_wheel(self.wheels, "torch", "2.10.0", files=TORCH)
        make_wheel(self.wheels, "nvidia-nccl-cu12", "2.27.5", files={HEADER: "twelve\n"})
        make_wheel(self.wheels, "nvidia-nccl-cu13", "2.28.9", files={HEADER: "thirteen!\n"})
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("UV_")},
            # What pip is configured with is what `fix` gives uv.
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        self.uv("venv", "--quiet", "--python", sys.executable, str(self.prefix))
        self.install("torch==2.10.0", "nvidia-nccl-cu12==2.27.5")

    @property
    def site(self) -> Path:
        return next(self.prefix.glob("lib/python3*/site-packages"))

    def uv(self, *arguments: str) -> None:
        program = str(uv.find(None, load()).path)
        subprocess.run([program, *arguments], env=self.variables, check=True, timeout=60)

    def install(self, *requirements: str) -> None:
        python = str(self.prefix / "bin/python")
        sources = ("--no-index", "--find-links", str(self.wheels))
        self.uv("pip", "install", "-q", "--no-deps", *sources, "--python", python, *requirements)

    def envdoctor(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "envdoctor", *arguments, "--prefix", str(self.prefix)],
            env={**self.variables, **variables},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_healthy_environment_has_nothing_to_fix(bench: Bench) -> None:
    done = bench.envdoctor("fix", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problem found" in done.stdout


def test_dry_run_prints_the_plan_and_does_nothing(bench: Bench) -> None:
    (bench.site / HEADER).unlink()
    done = bench.envdoctor("fix", "--dry-run")
    assert done.returncode == 1
    assert "1. package-files-damaged: nvidia-nccl-cu12 2.27.5" in done.stdout
    assert "--reinstall --no-deps nvidia-nccl-cu12==2.27.5" in done.stdout
    assert not (bench.site / HEADER).exists()


def test_damage_is_cured_and_looked_at_again(bench: Bench) -> None:
    (bench.site / HEADER).unlink()
    (bench.site / "torch/__init__.py").write_text("damaged")
    done = bench.envdoctor("fix", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cured  package-files-damaged of nvidia-nccl-cu12" in done.stdout
    assert "cured  package-files-damaged of torch" in done.stdout
    assert (bench.site / HEADER).read_text() == "twelve\n"
    assert bench.envdoctor("check", "--deep").returncode == 0


def test_flipped_bit_is_cured_where_it_is_looked_for(bench: Bench) -> None:
    (bench.site / HEADER).write_text("Twelve\n")
    assert "cured" not in bench.envdoctor("fix", "--yes").stdout
    assert "cured" in bench.envdoctor("fix", "--yes", "--deep").stdout
    assert (bench.site / HEADER).read_text() == "twelve\n"


def test_intruder_goes_before_the_owner_comes_back(bench: Bench) -> None:
    bench.install("nvidia-nccl-cu13==2.28.9")
    assert (bench.site / HEADER).read_text() == "thirteen!\n"
    make_wheel(bench.wheels, "needs-twelve", "1.0", requires=["nvidia-nccl-cu12==2.27.5"])
    bench.install("needs-twelve")
    done = bench.envdoctor("fix", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (bench.site / HEADER).read_text() == "twelve\n"
    assert not list(bench.site.glob("nvidia_nccl_cu13*"))


def test_it_stops_at_the_first_remedy_that_fails(bench: Bench) -> None:
    (bench.site / HEADER).unlink()
    (bench.site / "torch/__init__.py").unlink()
    shutil.rmtree(bench.wheels)
    bench.wheels.mkdir()
    done = bench.envdoctor("fix", "--yes")
    assert done.returncode in {4, 5}, done.stdout + done.stderr
    assert done.stdout.count("failed") == 1
    assert "cured" not in done.stdout


def test_remedy_that_does_not_help_ends_the_run(bench: Bench) -> None:
    (bench.site / HEADER).write_text("longer than recorded\n")
    done = bench.envdoctor("fix", "--yes", ENVDOCTOR_UV=str(pretend_uv(bench, "exit 0")))
    assert done.returncode == 1
    assert "failed package-files-damaged of nvidia-nccl-cu12" in done.stdout
    assert "it is still there" in done.stdout


def pretend_uv(bench: Bench, then: str) -> Path:
    """Write a program that calls itself uv and does something else."""
    program = bench.prefix.parent / "uv"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "uv 0.13.9" && exit\n{then}\n')
    program.chmod(0o755)
    return program


def test_leftover_metadata_is_removed_alone(bench: Bench) -> None:
    leftover = bench.site / "torch-2.8.0.dist-info"
    leftover.mkdir()
    (leftover / "REQUESTED").touch()
    done = bench.envdoctor("fix", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not leftover.exists()
    assert (bench.site / "torch/version.py").exists()


def test_ignored_check_is_left_alone(bench: Bench) -> None:
    (bench.site / HEADER).unlink()
    done = bench.envdoctor("fix", "--yes", "--ignore", "package-files-damaged")
    assert done.returncode == 0
    assert not (bench.site / HEADER).exists()


def test_without_a_terminal_it_asks_for_yes_or_dry_run(bench: Bench) -> None:
    done = bench.envdoctor("fix")
    assert done.returncode == 2
    assert "--yes" in done.stderr


def test_interrupt_ends_the_installer_and_says_so(bench: Bench) -> None:
    (bench.site / HEADER).unlink()
    mark = bench.prefix.parent / "pid"
    program = pretend_uv(bench, f"echo $$ > {mark}; exec sleep 60")
    process = subprocess.Popen(
        [sys.executable, "-m", "envdoctor", "fix", "--yes", "--prefix", str(bench.prefix)],
        env={**bench.variables, "ENVDOCTOR_UV": str(program)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not (mark.exists() and mark.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in err
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
