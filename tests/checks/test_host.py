from __future__ import annotations

import pytest

from envdoctor.facts import (
    ContainerFact,
    Distribution,
    DistributionsFact,
    Fact,
    HostFact,
    LimitsFact,
    NetworkFact,
)
from envdoctor.verdict import Ok, Severity, Skipped
from tests.machines import GIB, gpu, nvidia, problem, severity, variables

MIB = 1024**2
FOUR = nvidia(*(gpu(index) for index in range(4)))


def host(**more: object) -> HostFact:
    fields = {"machine": "x86_64", "kernel": "6", "glibc": "2.36", "disk_free_bytes": 9 * GIB}
    return HostFact(**{**fields, "shm_bytes": GIB, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shm", "facts", "expected"),
    [
        pytest.param(64 * MIB, [FOUR], Severity.ERROR, id="several-gpus"),
        pytest.param(64 * MIB, [], Severity.INFO, id="one-gpu"),
        pytest.param(64 * MIB, [nvidia(gpus=())], Severity.INFO, id="no-gpu"),
        pytest.param(
            64 * MIB,
            [FOUR, variables(CUDA_VISIBLE_DEVICES="1")],
            Severity.INFO,
            id="one-gpu-is-visible",
        ),
        pytest.param(GIB, [FOUR], Ok, id="exactly-enough"),
        pytest.param(GIB - 1, [FOUR], Severity.ERROR, id="one-byte-less"),
        pytest.param(0, [FOUR], Severity.ERROR, id="nothing"),
        pytest.param(None, [FOUR], Skipped, id="unknown"),
    ],
)
def test_shared_memory_too_small(shm: int | None, facts: list[Fact], expected: object) -> None:
    assert severity("shared-memory-too-small", host(shm_bytes=shm), *facts) == expected


@pytest.mark.parametrize(
    ("kind", "remedy", "owner"),
    [
        ("docker", "container-option", "image"),
        ("kubernetes", "container-option", "image"),
        ("", "config-change", "admin"),
    ],
)
def test_shared_memory_is_enlarged_where_it_is_set(kind: str, remedy: str, owner: str) -> None:
    small = host(shm_bytes=64 * MIB)
    found = problem("shared-memory-too-small", small, FOUR, ContainerFact(kind=kind))
    assert (found.remedy.kind, found.owner) == (remedy, owner)


def wheel(*tags: str) -> DistributionsFact:
    dist = Distribution(name="torch", version="2.10.0", path="/env/t.dist-info", tags=tags)
    return DistributionsFact(distributions=(dist,))


@pytest.mark.parametrize(
    ("glibc", "tags", "expected"),
    [
        pytest.param("2.17", ["cp311-cp311-manylinux_2_28_x86_64"], Severity.ERROR, id="too-old"),
        pytest.param("2.28", ["cp311-cp311-manylinux_2_28_x86_64"], Ok, id="exactly"),
        pytest.param("2.9", ["cp311-cp311-manylinux_2_28_x86_64"], Severity.ERROR, id="numbers"),
        pytest.param(
            "2.17",
            ["py3-none-manylinux_2_28_x86_64", "py3-none-manylinux_2_17_x86_64"],
            Ok,
            id="one-tag-fits",
        ),
        pytest.param("2.17", ["py3-none-any"], Ok, id="pure-python"),
        pytest.param(None, ["cp311-cp311-manylinux_2_28_x86_64"], Skipped, id="unknown"),
    ],
)
def test_glibc_too_old(glibc: str | None, tags: list[str], expected: object) -> None:
    assert severity("glibc-too-old", host(glibc=glibc), wheel(*tags)) == expected


@pytest.mark.parametrize(
    ("free", "expected"),
    [(GIB, Ok), (GIB - 1, Severity.WARNING), (None, Skipped)],
)
def test_disk_almost_full(free: int | None, expected: object) -> None:
    assert severity("disk-almost-full", host(disk_free_bytes=free)) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, Ok), (4 * GIB, Ok), (4 * GIB - 1, Severity.WARNING)],
)
def test_container_memory_too_small(limit: int | None, expected: object) -> None:
    fact = ContainerFact(kind="docker", memory_limit_bytes=limit)
    assert severity("container-memory-too-small", fact) == expected


@pytest.mark.parametrize(
    ("limits", "hcas", "expected"),
    [
        pytest.param(LimitsFact(memlock_bytes=65536), ("mlx5_0",), Severity.WARNING, id="low"),
        pytest.param(LimitsFact(), ("mlx5_0",), Ok, id="unlimited"),
        pytest.param(LimitsFact(memlock_bytes=65536), (), Skipped, id="no-rdma"),
        pytest.param(
            LimitsFact(memlock_bytes=65536, capabilities=("CAP_IPC_LOCK",)),
            ("mlx5_0",),
            Ok,
            id="capability",
        ),
    ],
)
def test_locked_memory_limit(limits: LimitsFact, hcas: tuple[str, ...], expected: object) -> None:
    network = NetworkFact(interfaces=("lo",), hcas=hcas)
    assert severity("locked-memory-limit", limits, network) == expected
