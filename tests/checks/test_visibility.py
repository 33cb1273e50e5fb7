from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import Gpu, MigDevice
from envdoctor.verdict import Ok, Severity, Skipped
from envdoctor.visible_devices import visible_devices
from tests.machines import gpu, installed, nvidia, problem, severity, variables

MIG = "MIG-00000000-0000-5000-8000-0000000000a1"
SLICED = gpu(0, is_mig=True, mig_devices=(MigDevice(uuid=MIG),))
MACHINE = nvidia(SLICED, gpu(1), gpu(2))
UUID = "GPU-20000000-aa"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("0,1,2", Ok, id="all"),
        pytest.param("2", Ok, id="last"),
        pytest.param(" 0 , 1 ", Ok, id="spaces"),
        pytest.param("0,1,", Ok, id="comma-at-the-end"),
        pytest.param("3", Severity.ERROR, id="none-left"),
        pytest.param("0,1,2,3", Severity.WARNING, id="some-left"),
        pytest.param("7,0", Severity.ERROR, id="what-follows-an-unknown-one-is-ignored"),
        pytest.param(UUID, Ok, id="uuid"),
        pytest.param("GPU-2", Ok, id="beginning-of-a-uuid"),
        pytest.param("GPU-ffff", Severity.ERROR, id="unknown-uuid"),
        pytest.param(MIG, Ok, id="slice"),
        pytest.param("MIG-GPU-00000000-aa/1/0", Ok, id="slice-as-old-drivers-name-it"),
        pytest.param("MIG-ffff", Severity.ERROR, id="unknown-slice"),
        pytest.param("cuda:0", Severity.ERROR, id="no-device-name"),
        pytest.param("", Severity.INFO, id="empty-hides-all"),
        pytest.param("-1", Severity.INFO, id="minus-one-hides-all"),
        pytest.param("NoDevFiles", Severity.INFO, id="set-by-slurm"),
    ],
)
def test_visible_device_not_found(value: str, expected: object) -> None:
    fact = variables(CUDA_VISIBLE_DEVICES=value)
    assert severity("visible-device-not-found", MACHINE, fact) == expected


def test_variable_that_is_not_set() -> None:
    assert severity("visible-device-not-found", MACHINE) is Ok


def test_unknown_device_names_the_entry_and_what_is_left() -> None:
    found = problem("visible-device-not-found", MACHINE, variables(CUDA_VISIBLE_DEVICES="1,9"))
    assert "'9'" in found.message
    assert found.culprit == "CUDA_VISIBLE_DEVICES"
    assert found.remedy.commands == ("unset CUDA_VISIBLE_DEVICES",)


def test_slices_that_could_not_be_listed_are_believed() -> None:
    fact = nvidia(gpu(is_mig=True, mig_devices=None))
    assert severity("visible-device-not-found", fact, variables(CUDA_VISIBLE_DEVICES=MIG)) is Ok


@pytest.mark.parametrize(
    ("value", "engine", "expected"),
    [
        pytest.param(MIG, "vllm==0.20.1", Severity.WARNING, id="slice"),
        pytest.param(UUID, "vllm==0.9.2", Severity.WARNING, id="gpu"),
        pytest.param("2", "vllm==0.20.1", Ok, id="index"),
        pytest.param(MIG, "transformers==5.0", Ok, id="no-engine"),
        pytest.param("MIG-ffff", "vllm==0.20.1", Skipped, id="unknown-is-another-finding"),
    ],
)
def test_visible_devices_by_uuid(value: str, engine: str, expected: object) -> None:
    facts = (MACHINE, variables(CUDA_VISIBLE_DEVICES=value), installed("torch==2.11.0", engine))
    assert severity("visible-devices-by-uuid", *facts) == expected


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param([gpu(is_mig=True)], Severity.ERROR, id="the-only-gpu"),
        pytest.param([gpu(is_mig=True), gpu(1)], Severity.WARNING, id="one-of-two"),
        pytest.param([SLICED], Ok, id="with-slices"),
        pytest.param([gpu(is_mig=True, mig_devices=None)], Ok, id="slices-unknown"),
        pytest.param([gpu()], Ok, id="no-mig"),
    ],
)
def test_mig_mode_without_slices(gpus: list[Gpu], expected: object) -> None:
    assert severity("mig-mode-without-slices", nvidia(*gpus)) == expected


def test_uuid_is_replaced_by_the_index() -> None:
    facts = (variables(CUDA_VISIBLE_DEVICES=UUID), installed("torch==2.11.0", "vllm==0.9"))
    found = problem("visible-devices-by-uuid", MACHINE, *facts)
    assert found.remedy.kind == "set-env"
    assert found.remedy.commands == ("export CUDA_VISIBLE_DEVICES=2",)


@given(st.text(max_size=60), st.integers(0, 4))
def test_any_value_is_read(value: str, count: int) -> None:
    seen = visible_devices(value, [gpu(index) for index in range(count)])
    assert not (seen.hides_all and seen.gpus)


@given(st.lists(st.integers(0, 3), min_size=1, unique=True))
def test_indexes_are_seen_in_their_order(indexes: list[int]) -> None:
    gpus = [gpu(index) for index in range(4)]
    seen = visible_devices(",".join(map(str, indexes)), gpus)
    assert [item.index for item in seen.gpus] == indexes
    assert not seen.unknown
