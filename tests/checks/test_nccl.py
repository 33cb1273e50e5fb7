from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.checks.nccl import selected
from envdoctor.facts import Fact, NcclFile, NcclFilesFact, NcclPluginsFact, NetworkFact
from envdoctor.verdict import Ok, Problem, Severity, Skipped
from tests.machines import outcomes, problem, severity, variables

INTERFACE, RDMA = "network-interface-not-found", "rdma-device-not-found"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        pytest.param("NCCL_SOCKET_IFNAME", "eth2", Severity.ERROR, id="unknown"),
        pytest.param("NCCL_SOCKET_IFNAME", "ens", Ok, id="prefix"),
        pytest.param("NCCL_SOCKET_IFNAME", "=ens", Severity.ERROR, id="exact-is-no-prefix"),
        pytest.param("NCCL_SOCKET_IFNAME", "=ens3", Ok, id="exact"),
        pytest.param("NCCL_SOCKET_IFNAME", "eth,ib,ens", Ok, id="one-of-a-list"),
        pytest.param("NCCL_SOCKET_IFNAME", "=eth0,ens3", Ok, id="exact-list"),
        pytest.param("NCCL_SOCKET_IFNAME", "^docker,lo", Ok, id="excluded"),
        pytest.param("NCCL_SOCKET_IFNAME", "^ens,lo", Severity.ERROR, id="all-excluded"),
        pytest.param("NCCL_SOCKET_IFNAME", "^=eth0", Ok, id="excluded-exactly"),
        pytest.param("NCCL_SOCKET_IFNAME", "", Ok, id="empty"),
        pytest.param("GLOO_SOCKET_IFNAME", "eth0", Severity.ERROR, id="gloo-unknown"),
        pytest.param("GLOO_SOCKET_IFNAME", "ens3", Ok, id="gloo"),
        pytest.param("GLOO_SOCKET_IFNAME", "ens", Severity.ERROR, id="gloo-takes-no-prefix"),
        pytest.param("GLOO_SOCKET_IFNAME", "ens3,eth0", Severity.ERROR, id="gloo-needs-all"),
        pytest.param("TP_SOCKET_IFNAME", "eth0", Severity.ERROR, id="tensorpipe"),
        pytest.param("NCCL_DEBUG", "INFO", Ok, id="no-interface-at-all"),
    ],
)
def test_network_interface_not_found(name: str, value: str, expected: object) -> None:
    assert severity(INTERFACE, variables(**{name: value})) == expected


@pytest.mark.parametrize(
    ("value", "hcas", "expected"),
    [
        pytest.param("mlx5_0", ("mlx5_0",), Ok, id="exact"),
        pytest.param("mlx5", ("mlx5_0",), Ok, id="prefix"),
        pytest.param("mlx5_0:1,mlx5_1:1", ("mlx5_0",), Ok, id="ports"),
        pytest.param("=mlx5_9:1", ("mlx5_0",), Severity.ERROR, id="unknown"),
        pytest.param("^mlx5_3", ("mlx5_0",), Ok, id="excluded"),
        pytest.param("^mlx5", ("mlx5_0",), Severity.ERROR, id="all-excluded"),
        pytest.param("mlx5_0", (), Severity.WARNING, id="no-device-at-all"),
        pytest.param("mlx5_0", None, Skipped, id="devices-unknown"),
    ],
)
def test_rdma_device_not_found(value: str, hcas: tuple[str, ...] | None, expected: object) -> None:
    network = NetworkFact(interfaces=("lo",), hcas=hcas)
    assert severity(RDMA, variables(NCCL_IB_HCA=value), network) == expected


def conf(path: str, **settings: str) -> NcclFile:
    return NcclFile(path=path, settings=tuple(settings.items()))


def test_setting_of_a_file_names_the_file_and_its_owner() -> None:
    files = NcclFilesFact(files=(conf("/etc/nccl.conf", NCCL_SOCKET_IFNAME="eth2"),))
    found = problem(INTERFACE, files)
    assert found.culprit == "NCCL_SOCKET_IFNAME in /etc/nccl.conf"
    assert (found.remedy.kind, found.owner) == ("config-change", "image")


def test_variable_wins_over_files_and_the_first_file_over_the_next() -> None:
    mine, system = (
        conf("/home/user/.nccl.conf", NCCL_SOCKET_IFNAME="ens3"),
        conf("/etc/nccl.conf", NCCL_SOCKET_IFNAME="eth2"),
    )
    assert severity(INTERFACE, NcclFilesFact(files=(mine, system))) is Ok
    first_wrong = NcclFilesFact(files=(system, mine))
    assert severity(INTERFACE, first_wrong) is Severity.ERROR
    assert severity(INTERFACE, first_wrong, variables(NCCL_SOCKET_IFNAME="ens3")) is Ok


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("NCCL_P2P_DISABLE", "1", Severity.INFO),
        ("NCCL_P2P_DISABLE", "0", Ok),
        ("NCCL_DEBUG", "INFO", Ok),
        ("NCCL_ALGO", "Tree", Severity.INFO),
        ("TORCHDYNAMO_DISABLE", "1", Severity.WARNING),
        ("CUDA_LAUNCH_BLOCKING", "1", Severity.WARNING),
        ("TRITON_INTERPRET", "True", Severity.WARNING),
    ],
)
def test_debugging_variable_left(name: str, value: str, expected: object) -> None:
    assert severity("debugging-variable-left", variables(**{name: value})) == expected


def test_each_left_over_variable_is_one_finding() -> None:
    found = outcomes("debugging-variable-left", variables(NCCL_ALGO="Ring", NCCL_PROTO="LL"))
    assert [item.culprit for item in found if isinstance(item, Problem)] == [
        "NCCL_ALGO",
        "NCCL_PROTO",
    ]


OFI = NcclPluginsFact(paths=("/opt/aws/lib/libnccl-net-ofi.so",))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([], Ok, id="nothing-is-asked-for"),
        pytest.param([OFI], Ok, id="found-by-itself"),
        pytest.param([variables(NCCL_NET_PLUGIN="ofi")], Severity.WARNING, id="absent"),
        pytest.param([variables(NCCL_NET_PLUGIN="ofi"), OFI], Ok, id="what-follows-the-prefix"),
        pytest.param([variables(NCCL_NET_PLUGIN="libnccl-net-ofi.so"), OFI], Ok, id="file"),
        pytest.param([variables(NCCL_NET_PLUGIN="/x/y.so"), OFI], Severity.WARNING, id="path"),
        pytest.param([variables(NCCL_NET_PLUGIN="none")], Ok, id="none-is-wanted"),
        pytest.param([variables(NCCL_NET="IB")], Ok, id="built-in-network"),
        pytest.param([variables(NCCL_NET="AWS Libfabric")], Severity.ERROR, id="demanded"),
        pytest.param([variables(NCCL_NET="AWS Libfabric"), OFI], Ok, id="demanded-and-found"),
    ],
)
def test_nccl_plugin_not_found(facts: list[Fact], expected: object) -> None:
    assert severity("nccl-plugin-not-found", *facts) == expected


@given(st.text(max_size=40))
def test_any_list_selects_some_of_the_names(value: str) -> None:
    assert set(selected(value, ["lo", "ens3"])) <= {"lo", "ens3"}


@given(st.lists(st.from_regex(r"[a-z]{1,3}\d{1,2}", fullmatch=True), min_size=1, unique=True))
def test_exact_list_selects_exactly_what_it_names(names: list[str]) -> None:
    assert selected("=" + ",".join(names), [*names, "other"]) == names
    assert selected("^=" + ",".join(names), [*names, "other"]) == ["other"]
