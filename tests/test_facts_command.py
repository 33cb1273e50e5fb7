"""`envdoctor facts`, and `envdoctor check` on what it wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from envdoctor.facts import FactSet
from envdoctor.facts.snapshot import to_data
from tests.environments import CUDNN, make_cuda_environment
from tests.machines import HEALTHY, gpu, nvidia, variables

if TYPE_CHECKING:
    from pathlib import Path


def envdoctor(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def judged(*arguments: object) -> dict[str, Any]:
    done = envdoctor("check", "--format", "json", *arguments)
    assert done.returncode in (0, 1), done.stderr
    findings = json.loads(done.stdout)["findings"]
    return {item["check"]: item for item in findings}


def snapshot(path: Path, facts: FactSet) -> Path:
    path.write_text(json.dumps(to_data(facts)))
    return path


def test_snapshot_is_judged_as_the_environment_itself_is(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    (environment.site / CUDNN).unlink()
    done = envdoctor("facts", "--prefix", environment.prefix)
    assert (done.returncode, done.stderr) == (0, "")
    written = tmp_path / "facts.json"
    written.write_text(done.stdout)
    assert judged("--facts", written) == judged("--prefix", environment.prefix)


def test_snapshot_alone_reads_nothing_of_this_machine(tmp_path: Path) -> None:
    facts = FactSet([*HEALTHY, variables(NCCL_SOCKET_IFNAME="eth2")])
    found = judged("--facts", snapshot(tmp_path / "facts.json", facts))
    assert found["network-interface-not-found"]["severity"] == "error"
    assert found["gpu-arch-not-in-build"]["outcome"] == "ok"
    assert found["venv-python-gone"]["outcome"] == "skipped"
    assert "no VenvFact" in found["venv-python-gone"]["message"]


def test_partial_snapshot_with_an_environment_stands_in_for_the_machine(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    machine = FactSet([nvidia(gpu(capability="6.1", name="GTX 1080"))])
    given = snapshot(tmp_path / "facts.json", machine)
    found = judged("--prefix", environment.prefix, "--facts", given)
    assert found["gpu-arch-not-in-build"]["severity"] == "error"
    assert found["package-files-damaged"]["outcome"] == "ok"


def test_root_of_an_image_is_read_instead_of_this_machine(tmp_path: Path) -> None:
    root = tmp_path / "image"
    environment = make_cuda_environment(root / "opt/env")
    (root / "etc").mkdir()
    (root / "etc/nccl.conf").write_text("NCCL_SOCKET_IFNAME=eth9\n")
    (root / "sys/class/net/lo").mkdir(parents=True)
    found = judged("--sysroot", root, "--prefix", environment.prefix)
    error = found["network-interface-not-found"]
    assert error["culprit"] == "NCCL_SOCKET_IFNAME in /etc/nccl.conf"
    assert found["shared-memory-too-small"]["outcome"] == "skipped"


def test_log_is_searched_beside_a_snapshot(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("RuntimeError: using FX to symbolically trace a dynamo-optimized function\n")
    given = snapshot(tmp_path / "facts.json", FactSet(HEALTHY))
    assert judged("--facts", given)["fx-tracing-race"]["severity"] == "info"
    found = judged("--facts", given, "--log", log)
    assert found["fx-tracing-race"]["severity"] == "warning"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["--facts", "/no/facts.json"], "/no/facts.json", id="absent-snapshot"),
        pytest.param(["--facts", "{wrong}"], "facts.host: found 5, wanted an object", id="wrong"),
        pytest.param(["--sysroot", "/no/root"], "--sysroot /no/root", id="absent-root"),
        pytest.param(["--sysroot", "{root}"], "which environment", id="root-without-environment"),
    ],
)
def test_wrong_files_exit_2(tmp_path: Path, arguments: list[str], says: str) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"schema_version": 1, "facts": {"host": 5}}')
    filled = [item.format(wrong=wrong, root=tmp_path) for item in arguments]
    done = envdoctor("check", *filled)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
