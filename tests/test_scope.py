from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envdoctor.diagnose import judge
from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    Fact,
    FactSet,
    HostFact,
    NvidiaFact,
    TorchBuildFact,
)
from envdoctor.probes.nvidia import read_nvidia
from envdoctor.probes.subject import Subject
from envdoctor.render import closing_line, report_lines
from envdoctor.report import outcome_name
from envdoctor.scope import not_judged

if TYPE_CHECKING:
    from pathlib import Path

HOST = HostFact(machine="x86_64", kernel="6.1.0", glibc="2.36", shm_bytes=1, disk_free_bytes=1)
TORCH = Distribution(name="torch", version="2.10.0", path="/e/torch.dist-info", installer="uv")


def installed(installer: str) -> DistributionsFact:
    return DistributionsFact(distributions=(replace(TORCH, installer=installer),))


def build(version: str, hip: str | None = None) -> TorchBuildFact:
    return TorchBuildFact(path="/e/torch", version=version, hip=hip)


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        pytest.param(HOST, "", id="linux"),
        pytest.param(replace(HOST, machine="aarch64"), "aarch64", id="arm"),
        pytest.param(replace(HOST, machine="arm64", system="Darwin"), "Darwin", id="mac"),
        pytest.param(replace(HOST, machine="AMD64", system="Windows"), "Windows", id="windows"),
        pytest.param(replace(HOST, kernel="5.15.1-microsoft-standard-WSL2"), "WSL2", id="wsl"),
        pytest.param(installed("uv"), "", id="uv"),
        pytest.param(installed("pip"), "", id="pip"),
        pytest.param(installed("conda"), "conda", id="conda"),
        pytest.param(DistributionsFact(distributions=()), "", id="no-torch"),
        pytest.param(build("2.10.0+cu128"), "", id="cuda"),
        pytest.param(build("2.10.0+rocm7.0"), "ROCm", id="rocm-by-tag"),
        pytest.param(build("2.10.0a0", hip="7.0"), "ROCm", id="rocm-by-version.py"),
        pytest.param(build("2.10.0+xpu"), "XPU", id="xpu"),
    ],
)
def test_what_is_not_judged_is_said_in_one_sentence(fact: Fact, says: str) -> None:
    found = not_judged(FactSet([fact]))
    assert len(found) == bool(says)
    assert says in "".join(found)


def test_what_could_not_be_read_is_said() -> None:
    assert not_judged(FactSet([HOST]).lacking(TorchBuildFact, "no permission")) == ["no permission"]


def test_one_reason_is_said_once() -> None:
    facts = (
        FactSet([]).lacking(TorchBuildFact, "no permission").lacking(NvidiaFact, "no permission")
    )
    assert not_judged(facts) == ["no permission"]


def test_nothing_is_said_of_a_system_that_is_not_judged() -> None:
    report = judge(FactSet([replace(HOST, system="Darwin"), build("2.13.0")]))
    assert {outcome_name(item.outcome) for item in report.findings} == {"skipped"}
    assert report.environment["not_judged"] == ["Darwin: envdoctor judges Linux only"]
    assert closing_line(report).text.startswith("nothing was judged; 0 checks ok")


def test_empty_snapshot_is_not_called_healthy() -> None:
    (line,) = report_lines(judge(FactSet([])))
    assert line.text.startswith("unknown environment: nothing was judged; ")


def test_gpus_under_wsl_are_not_called_absent(tmp_path: Path) -> None:
    subject = Subject(prefix=tmp_path, root=tmp_path)
    assert read_nvidia(subject, FactSet([HOST])).num_devices == 0
    with pytest.raises(LookupError, match="WSL2"):
        read_nvidia(subject, FactSet([replace(HOST, kernel="5.15.1-microsoft-standard-WSL2")]))
