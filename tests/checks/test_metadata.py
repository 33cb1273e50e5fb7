from __future__ import annotations

import pytest

from envdoctor.facts import (
    DifferingFile,
    Distribution,
    DistributionFiles,
    DistributionsFact,
    PolicyFact,
    RecordsFact,
    TorchBuildFact,
)
from envdoctor.verdict import Ok, Skipped
from tests.checks.test_agreement import outcomes, problem

CHECK = "torch-version-disagrees"
LIBRARY = "/env/torch/lib/libtorch_cuda.so"


def torch(
    version: str = "2.9.1+cu128", cuda: str | None = "12.8", **more: object
) -> TorchBuildFact:
    values: dict[str, object] = {"has_cuda_library": cuda is not None} | more
    return TorchBuildFact(path="/env/torch", version=version, cuda=cuda, **values)  # type: ignore[arg-type]


def installed(*versions: str, installer: str = "uv") -> DistributionsFact:
    return DistributionsFact(
        distributions=tuple(
            Distribution(name="torch", version=v, path=f"/env/torch-{v}", installer=installer)
            for v in versions
        )
    )


@pytest.mark.parametrize(
    ("build", "facts"),
    [
        pytest.param(torch(), installed("2.9.1"), id="no-local-tag-in-METADATA"),
        pytest.param(torch(), installed("2.9.1+cu128"), id="the-same"),
        pytest.param(torch(), installed("2.8.0", "2.9.1"), id="a-leftover-beside-it"),
        pytest.param(torch("2.9.1+cpu", None), installed("2.9.1+cpu"), id="cpu"),
        pytest.param(
            torch("2.9.1+rocm6.4", None, hip="6.4"), installed("2.9.1+rocm6.4"), id="rocm"
        ),
        pytest.param(
            torch(variant=("nvidia :: cuda_version_lower_bound :: 12.8",)),
            installed("2.9.1"),
            id="variant",
        ),
        pytest.param(
            torch(has_cuda_library=False), installed("2.9.1", installer="conda"), id="conda"
        ),
    ],
)
def test_one_build(build: TorchBuildFact, facts: DistributionsFact) -> None:
    assert isinstance(outcomes(CHECK, build, facts)[0], Ok)


@pytest.mark.parametrize(
    ("build", "facts", "says"),
    [
        pytest.param(torch(), installed("2.8.0"), "says 2.8.0", id="version"),
        pytest.param(torch(), installed("2.9.1+cu130"), "says 2.9.1+cu130", id="tag"),
        pytest.param(torch("2.9.1+cpu", None), installed("2.9.1+cu128"), "+cu128", id="cpu-code"),
        pytest.param(
            torch("2.9.1+cpu", None, has_cuda_library=True),
            installed("2.9.1+cpu"),
            "code for CUDA",
            id="cuda-libraries-under-cpu-code",
        ),
        pytest.param(
            torch(has_cuda_library=False), installed("2.9.1"), "no such library", id="no-library"
        ),
        pytest.param(
            torch(variant=("cpu :: level :: v3",)), installed("2.9.1"), "cpu ::", id="cpu-variant"
        ),
        pytest.param(
            torch("2.9.1", None, variant=("nvidia :: sm_arch :: 90_real",)),
            installed("2.9.1"),
            "nvidia ::",
            id="cuda-variant-of-cpu-code",
        ),
    ],
)
def test_mixed_builds(build: TorchBuildFact, facts: DistributionsFact, says: str) -> None:
    found = problem(CHECK, build, facts)
    assert (found.culprit, found.remedy.kind) == ("torch", "reinstall-package")
    assert says in found.message


def test_library_that_its_record_misses_is_told_by_the_check_of_files() -> None:
    gone = DifferingFile(path=LIBRARY, expected="1 bytes", found="missing")
    records = RecordsFact(
        distributions=(
            DistributionFiles(name="torch", num_files=1, num_libraries=1, differing=(gone,)),
        )
    )
    found = outcomes(CHECK, torch(has_cuda_library=False), installed("2.9.1"), records)
    assert isinstance(found[0], Ok)


def test_torch_without_metadata_is_reinstalled_in_its_build() -> None:
    found = problem(CHECK, torch(), DistributionsFact(distributions=()))
    assert "no dist-info in /env" in found.message
    assert found.remedy.commands[0].endswith("whl/cu128 torch==2.9.1")


def test_torch_with_an_egg_info_is_left_alone() -> None:
    facts = DistributionsFact(distributions=(), egg_infos=("torch",))
    assert isinstance(outcomes(CHECK, torch(), facts)[0], Skipped)


@pytest.mark.parametrize(
    ("found", "policy", "command"),
    [
        pytest.param("2.9.1+cpu", PolicyFact(), "/whl/cpu torch==2.9.1", id="as-the-code"),
        pytest.param(
            "2.9.1+cpu",
            PolicyFact(profile="x", torch_version="2.10.0", variant="cu128"),
            "/whl/cu128 torch==2.10.0",
            id="as-the-profile",
        ),
        pytest.param("2.8.0a0+5228986c39.nv25.5", PolicyFact(), "build --profile cpu", id="vendor"),
    ],
)
def test_remedy_names_a_source_that_has_the_build(
    found: str, policy: PolicyFact, command: str
) -> None:
    remedy = problem(CHECK, torch(found, None), installed("2.9.1+cu128"), policy).remedy
    assert remedy.commands[0].endswith(command)
