"""The bill of materials, and requirements on top of a profile."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from envdoctor import profile, receipt, sbom
from envdoctor.errors import ExitCode, UsageError
from tests.tiny_wheels import make_wheel
from tests.workbench import Bench, envdoctor

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_bill_of_materials_says_what_the_receipt_says(bench: Bench) -> None:
    built = bench.build(bench.write())
    found = json.loads(envdoctor(bench, "envs", "sbom", "--profile", "tiny").stdout)
    assert found == sbom.cyclonedx(built.receipt)
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found["serialNumber"]
    )
    python, *packages = found["components"]
    assert (python["type"], python["version"]) == ("platform", built.receipt.python.version)
    for component, wheel in zip(packages, built.receipt.packages, strict=True):
        assert (component["name"], component["version"]) == (wheel.name, wheel.version)
        assert component["hashes"] == [{"alg": "SHA-256", "content": wheel.sha256}]
    torch = packages[-1]
    file = "torch-9.9.0%2Bcpu-py3-none-any.whl"
    assert torch["purl"] == f"pkg:pypi/torch@9.9.0%2Bcpu?file_name={file}"
    references = [component["bom-ref"] for component in found["components"]]
    assert len(set(references)) == len(references)
    subject = found["metadata"]["component"]
    assert (subject["name"], subject["version"]) == ("tiny", built.path.name)
    assert built.receipt.tree is not None
    properties = {item["name"]: item["value"] for item in subject["properties"]}
    assert properties["envdoctor:tree-packages"] == built.receipt.tree.packages


def test_unreadable_receipt_has_no_bill(bench: Bench) -> None:
    built = bench.build(bench.write())
    (bench.envs / f"receipts/{built.path.name}.json").write_text("{}")
    done = envdoctor(bench, "envs", "sbom")
    assert done.returncode == ExitCode.PROBLEM
    assert "error[receipt-not-readable]" in done.stderr


def test_requirement_on_top_is_built_and_the_receipt_says_so(bench: Bench) -> None:
    make_wheel(bench.wheels, "gamma", "1.0")
    path = bench.write()
    plain = bench.build(path)
    done = envdoctor(bench, "build", "--profile", path, "--with", "gamma==1.0")
    assert done.returncode == ExitCode.OK, done.stderr
    current = bench.current.resolve()
    assert current != plain.path
    written = receipt.read(bench.envs / f"receipts/{current.name}.json")
    assert written is not None
    assert [one.name for one in written.packages] == ["alpha", "beta", "gamma", "torch"]
    assert written.profile["packages"]["require"] == ["alpha==1.0", "gamma==1.0"]


@pytest.mark.parametrize(
    ("requirement", "code", "words"),
    [
        pytest.param("alpha==2.0", ExitCode.NO_SOLUTION, "alpha==1.0", id="against-a-pin"),
        pytest.param("vllm-flash", ExitCode.NO_SOLUTION, "vllm-flash (vllm*)", id="forbidden"),
        pytest.param("torch==1.0", ExitCode.USAGE, "torch.version", id="torch"),
        pytest.param("x @ https://h/x.whl", ExitCode.USAGE, "URL", id="url"),
        pytest.param("==1", ExitCode.USAGE, "wanted a requirement", id="no-requirement"),
    ],
)
def test_requirement_that_does_not_fit_is_refused(
    bench: Bench, requirement: str, code: ExitCode, words: str
) -> None:
    make_wheel(bench.wheels, "alpha", "2.0")
    make_wheel(bench.wheels, "vllm-flash", "1.0")
    done = envdoctor(bench, "build", "--profile", bench.write(), "--with", requirement)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert not bench.current.exists()


def test_nothing_on_top_leaves_the_profile_as_it_is() -> None:
    base = profile.load_profile("cpu")
    assert profile.with_requirements(base, ()) == base
    with pytest.raises(UsageError, match="packages"):
        profile.with_requirements(base, ["!"])
