from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.caches.samples import Bench, graph_pickle, key, write_graph, write_inductor, write_triton
from tests.train.tiny_run import write_run

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


def envdoctor(
    bench: Bench, *arguments: str | Path, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {
        **os.environ,
        **bench.subject.variables,
        "ENVDOCTOR_HOME": str(bench.home),
        "PYTHONPATH": str(ROOT),
        **(more or {}),
    }
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", "cache", *map(str, arguments)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path)
    write_inductor(found.inductor, mark=found.around().mark)
    write_triton(found.triton, 90)
    return found


def test_status_names_what_decided_and_what_entries_were_built_for(bench: Bench) -> None:
    done = envdoctor(bench, "status", "--prefix", bench.environment.prefix)
    assert done.returncode == 0, done.stderr
    assert f"inductor   {bench.inductor}\n  decided by TORCHINDUCTOR_CACHE_DIR" in done.stdout
    assert "graph (torch 2.10.0+cu128)" in done.stdout
    assert "kernel (triton 3.6.0, arch sm_90)" in done.stdout
    assert "not there yet" in done.stdout
    assert "1 lock files" in done.stdout
    assert "\x1b" not in done.stdout


def test_status_as_json_lists_every_entry(bench: Bench) -> None:
    done = envdoctor(
        bench, "status", "--prefix", bench.environment.prefix, "--format", "json",
        more={"CUDA_CACHE_DISABLE": "1"},
    )  # fmt: skip
    data = json.loads(done.stdout)
    assert set(data) == {"schema", "prefix", "fingerprint", "caches", "totals"}
    caches = {cache["kind"]: cache for cache in data["caches"]}
    assert list(caches) == ["inductor", "headers", "triton", "flashinfer", "cuda"]
    assert caches["cuda"]["disabled_by"] == "CUDA_CACHE_DISABLE=1"
    assert caches["inductor"]["entries"] == len(caches["inductor"]["all_entries"]) == 16
    assert caches["inductor"]["mode"]
    assert caches["inductor"]["owner_uid"] == os.getuid()
    (kernel,) = caches["triton"]["all_entries"]
    assert kernel["made_for"] == {"triton": "3.6.0", "arch": "sm_90"}
    assert len(kernel["files"]) == 8


def test_verify_stamp_damage_prune(bench: Bench) -> None:
    where = ["--prefix", str(bench.environment.prefix)]
    assert "17 unknown" in envdoctor(bench, "verify", *where).stdout
    done = envdoctor(bench, "verify", *where, "--deep", "--stamp")
    assert (done.returncode, done.stderr) == (0, "stamped 17 entries\n")
    assert "17 valid" in envdoctor(bench, "verify", *where).stdout
    name = key("c", 0)
    path = bench.inductor / name[1:3] / f"{name}.py"
    path.write_text("changed = 1\n")
    write_graph(bench.inductor, 9, graph_pickle(9, mark="d" * 51))
    done = envdoctor(bench, "verify", *where)
    assert done.returncode == 1
    assert "16 valid, 1 foreign, 1 corrupt" in done.stdout
    data = json.loads(envdoctor(bench, "verify", *where, "--format", "json").stdout)
    assert data["totals"]["corrupt"]["entries"] == 1
    assert data["totals"]["corrupt"]["examples"][0]["path"] == f"{name[1:3]}/{name}"

    done = envdoctor(bench, "prune", *where)
    assert done.returncode == 2
    assert "no terminal to ask on" in done.stderr
    done = envdoctor(bench, "prune", *where, "--dry-run")
    assert str(path) in done.stdout
    assert path.exists()
    done = envdoctor(bench, "prune", *where, "--yes")
    assert (done.returncode, path.exists()) == (0, False)
    assert "removed 1 files" in done.stdout
    done = envdoctor(bench, "prune", *where, "--yes", "--class", "foreign")
    assert "removed 1 files" in done.stdout
    assert "16 valid" in envdoctor(bench, "verify", *where, "--deep").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param(["verify", "--stamp"], 2, "--stamp vouches for", id="stamp"),
        pytest.param(["import", "none.cache"], 2, "none.cache", id="no-archive"),
        pytest.param(["warm", "--config", "none.toml"], 2, "none.toml", id="no-run-file"),
        pytest.param(["verify", "--prefix", "/nowhere"], 2, "/nowhere", id="no-environment"),
        pytest.param(["prune", "--class", "valid", "--yes"], 2, "valid", id="prune-valid"),
    ],
)
def test_wrong_usage_is_one_line(bench: Bench, arguments: list[str], code: int, said: str) -> None:
    done = envdoctor(bench, *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_drive_a_terminal_are_escaped(bench: Bench) -> None:
    name = key("c", 40)
    (bench.inductor / name[1:3]).mkdir()
    (bench.inductor / name[1:3] / f"{name}.x\x1b[31m\n.py").write_bytes(b"")
    done = envdoctor(bench, "verify", "--prefix", bench.environment.prefix)
    assert ".x\\x1b[31m\\n.py: empty" in done.stdout
    assert "\x1b" not in done.stdout


def test_what_cannot_be_decoded_is_printed(bench: Bench) -> None:
    name = key("c", 41)
    (bench.inductor / name[1:3]).mkdir(exist_ok=True)
    path = os.fsencode(bench.inductor / name[1:3] / name) + b".\xff.py"
    packed = str(bench.folder / "packed.cache")
    path_of = Path(os.fsdecode(path))
    path_of.write_bytes(b"1")
    for words in (["verify", "--deep", "--stamp"], ["export", packed]):
        done = envdoctor(bench, *words, "--prefix", bench.environment.prefix)
        assert done.returncode == 0, done.stderr
    path_of.write_bytes(b"")
    for words in (["verify"], ["verify", "--format", "json"], ["status", "-v"], ["prune", "-y"]):
        done = envdoctor(bench, *words, "--prefix", bench.environment.prefix)
        assert "Traceback" not in done.stderr, done.stderr
    assert not path_of.exists()


def test_a_cache_whose_folder_is_no_text_is_not_stamped(bench: Bench) -> None:
    folder = os.fsdecode(os.fsencode(bench.folder) + b"/\xff")
    bench.inductor.rename(folder)
    where = ["--prefix", str(bench.environment.prefix)]
    more = {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_X": "\udcff"}
    assert "17 unknown" in envdoctor(bench, "verify", *where, more=more).stdout
    done = envdoctor(bench, "verify", "--deep", "--stamp", *where, more=more)
    assert done.returncode == 7
    assert "is no UTF-8 text" in done.stderr


@pytest.mark.slow
def test_warm_runs_the_trainer_once(tmp_path: Path) -> None:
    """On a CPU nothing is compiled; that is told, what is there is stamped, and the rest waits."""
    bench = Bench(tmp_path)
    run_file = write_run(tmp_path)
    done = envdoctor(bench, "warm", "--config", run_file, "--env", sys.prefix)
    assert done.returncode == 0, done.stderr
    assert "attention is dense here, so nothing is compiled" in done.stderr
    assert done.stdout == "tiny compiles nothing here; 0 entries stamped\n"
    done = envdoctor(bench, "warm", "--config", run_file, "--env", sys.prefix)
    assert "tiny is warm already: nothing to do" in done.stdout
    assert done.stderr == ""
    bad = run_file.with_name("bad.toml")
    bad.write_text(run_file.read_text().replace('"model"', '"gone.gguf"'))
    done = envdoctor(bench, "warm", "--config", bad, "--env", sys.prefix)
    assert done.returncode == 2
    assert "target.path" in done.stderr
