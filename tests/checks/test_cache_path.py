"""Paths of Inductor's cache that the C++ compiler's command line does not survive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import CacheFolder, CachesFact, TorchBuildFact
from envdoctor.verdict import Ok, Severity, Skipped
from tests.machines import nvidia, problem, severity

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.facts.caches import CacheKind

CHECK = "cache-path-with-space"
VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
COMPILE = """
import torch
compiled = torch.compile(lambda x, w: torch.nn.functional.gelu(x @ w).sum(dim=-1) + x.sin().mean())
try:
    compiled(torch.randn(4, 8), torch.randn(8, 8))
except Exception as error:
    print(error)
"""


def caches(path: str, *, kind: CacheKind = "inductor", variable: str = "") -> CachesFact:
    return CachesFact(folders=(CacheFolder(kind=kind, path=path, variable=variable),))


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        pytest.param(caches("/tmp/torchinductor_ada"), Ok, id="plain"),
        pytest.param(caches("/mnt/c/$HOME/(x)/a;b"), Ok, id="what-a-shell-would-read"),
        pytest.param(caches("/mnt/my disk/c"), Severity.WARNING, id="space"),
        pytest.param(caches("/mnt/ada's/c"), Severity.WARNING, id="quote"),
        pytest.param(caches('/mnt/"x"/c'), Severity.WARNING, id="double-quotes"),
        pytest.param(caches("/mnt/a\\b/c"), Severity.WARNING, id="backslash"),
        pytest.param(caches("/a b", kind="headers"), Severity.WARNING, id="headers"),
        pytest.param(caches("/a b", kind="triton"), Ok, id="triton"),
    ],
)
def test_path_that_falls_apart_is_told(fact: CachesFact, expected: object) -> None:
    assert severity(CHECK, fact, nvidia(gpus=())) == expected


def test_gpu_makes_it_a_note() -> None:
    assert severity(CHECK, caches("/a b")) is Severity.INFO


def test_without_torch_nothing_is_compiled() -> None:
    assert severity(CHECK, caches("/a b"), TorchBuildFact(path=None)) is Skipped


@pytest.mark.parametrize(
    ("fact", "command"),
    [
        pytest.param(
            caches("/a b", variable=VARIABLE), f"{VARIABLE}=/tmp/torchinductor-1000", id="named"
        ),
        pytest.param(caches("/a b/torchinductor_ada"), "TMPDIR=/tmp", id="temporary"),
        pytest.param(caches("/tmp/torchinductor_ada b"), "LOGNAME=user1000", id="user"),
    ],
)
def test_remedy_changes_what_decides_the_path(fact: CachesFact, command: str) -> None:
    found = problem(CHECK, fact)
    assert found.culprit == command.partition("=")[0]
    assert found.remedy.commands == (f"export {command}",)


@given(st.text(min_size=1).filter(lambda text: not set(text) & set(" \t\r\n'\"\\")))
def test_no_other_character_matters(name: str) -> None:
    assert severity(CHECK, caches(f"/tmp/{name}")) is Ok


@pytest.mark.slow  # imports torch, and compiles C++
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_torch_still_fails_there(tmp_path: Path) -> None:
    """When it does not any more, the check's docstring and its version are to be looked at."""
    pytest.importorskip("torch")
    said = {}
    for name in ("plain", "with space"):
        done = subprocess.run(
            [sys.executable, "-c", COMPILE],
            env={**os.environ, VARIABLE: str(tmp_path / name), "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        said[name] = done.stdout
    assert said["plain"] == ""
    assert "is the same as output file" in said["with space"]
