"""Probes of the machine on small roots made of real files."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import (
    FactSet,
    HostFact,
    InterpreterFact,
    KernelLogFact,
    LoaderCacheFact,
    NvidiaFact,
    PolicyFact,
    Ptxas,
    RunRecord,
    ServicesFact,
    UserFact,
)
from envdoctor.probes.container import parse_capabilities, read_container, read_limits
from envdoctor.probes.host import read_host
from envdoctor.probes.network import (
    parse_nccl_conf,
    read_nccl_files,
    read_nccl_plugins,
    read_network,
)
from envdoctor.probes.run_records import failures_in, read_log_records
from envdoctor.probes.services import read_kernel_log, read_services
from envdoctor.probes.storage import read_storage
from envdoctor.probes.subject import Subject
from envdoctor.probes.toolchain import read_compiler, read_ptxas
from envdoctor.probes.user import read_user
from tests.machines import gpu, nvidia

NOTHING = FactSet([])


def write(path: Path, text: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def subject(root: Path, **variables: str) -> Subject:
    return Subject(prefix=root / "env", root=root, variables=variables)


def here(**variables: str) -> Subject:
    return Subject(prefix=Path("/no/env"), variables=variables)


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        (".dockerenv", "docker"),
        ("run/.containerenv", "podman"),
        (".singularity.d/env", "apptainer"),
        ("var/run/secrets/kubernetes.io/token", "kubernetes"),
        ("etc/hosts", ""),
    ],
)
def test_container_by_the_marks_of_its_runtime(tmp_path: Path, mark: str, kind: str) -> None:
    write(tmp_path / mark)
    assert read_container(subject(tmp_path), NOTHING).kind == kind


def test_container_of_kubernetes_by_its_variable(tmp_path: Path) -> None:
    write(tmp_path / ".dockerenv")
    fact = read_container(subject(tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1"), NOTHING)
    assert fact.kind == "kubernetes"


def test_container_and_limits_of_this_machine_are_read() -> None:
    fact = read_container(here(), NOTHING)
    assert fact.memory_limit_bytes is None or fact.memory_limit_bytes > 0
    limits = read_limits(here(), NOTHING)
    assert limits.open_files is None or limits.open_files > 0


@given(st.text(max_size=20))
def test_capabilities_of_any_text(text: str) -> None:
    assert all(name.startswith("CAP_") for name in parse_capabilities(text))


def test_capabilities_by_their_bit() -> None:
    assert parse_capabilities("0000000000004000\n") == ("CAP_IPC_LOCK",)
    assert parse_capabilities("0000000000000000") == ()


def test_interfaces_and_rdma_devices(tmp_path: Path) -> None:
    for name in ("lo", "ens3"):
        write(tmp_path / "sys/class/net" / name / "operstate", "up\n")
    write(tmp_path / "sys/class/net/bonding_masters")
    write(tmp_path / "sys/class/infiniband/mlx5_0/node_type")
    fact = read_network(subject(tmp_path), NOTHING)
    assert (fact.interfaces, fact.hcas) == (("ens3", "lo"), ("mlx5_0",))


def test_image_without_sysfs_tells_no_interfaces(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="/sys/class/net"):
        read_network(subject(tmp_path), NOTHING)


def test_nccl_files_in_the_order_in_which_they_win(tmp_path: Path) -> None:
    text = "NCCL_DEBUG=WARN\n# NCCL_ALGO=Ring\nNCCL_SOCKET_IFNAME==ens3\n"
    write(tmp_path / "etc/nccl.conf", text)
    write(tmp_path / "home/me/.nccl.conf", "NCCL_DEBUG = INFO # loud\n")
    fact = read_nccl_files(subject(tmp_path, HOME="/home/me"), NOTHING)
    assert [file.path for file in fact.files] == ["/home/me/.nccl.conf", "/etc/nccl.conf"]
    assert fact.files[0].settings == (("NCCL_DEBUG", "INFO"),)
    assert fact.files[1].settings == (("NCCL_DEBUG", "WARN"), ("NCCL_SOCKET_IFNAME", "=ens3"))


def test_named_nccl_file_stands_for_that_of_the_home(tmp_path: Path) -> None:
    write(tmp_path / "opt/nccl.conf", "NCCL_IB_HCA=mlx5_9")
    write(tmp_path / "home/me/.nccl.conf", "NCCL_DEBUG=INFO")
    named = {"HOME": "/home/me", "NCCL_CONF_FILE": "/opt/nccl.conf"}
    fact = read_nccl_files(subject(tmp_path, **named), NOTHING)
    assert [file.path for file in fact.files] == ["/opt/nccl.conf"]


def test_nccl_file_that_is_a_fifo_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc/nccl.conf")
    assert read_nccl_files(subject(tmp_path), NOTHING).files == ()


def test_plugins_where_the_loader_looks(tmp_path: Path) -> None:
    write(tmp_path / "opt/lib/libnccl-net-ofi.so")
    write(tmp_path / "opt/lib/libother.so")
    write(tmp_path / "srv/mine.so")
    cache = LoaderCacheFact(entries=(("libnccl-net.so", "/usr/lib/libnccl-net.so"),))
    variables = {"LD_LIBRARY_PATH": "/opt/lib:", "NCCL_NET_PLUGIN": "/srv/mine.so,/no/such.so"}
    fact = read_nccl_plugins(subject(tmp_path, **variables), FactSet([cache]))
    assert fact.paths == (
        "/opt/lib/libnccl-net-ofi.so",
        "/usr/lib/libnccl-net.so",
        "/srv/mine.so",
    )


@given(st.text(max_size=200))
def test_nccl_file_of_any_text(text: str) -> None:
    assert all(name == name.strip() != "" for name, _ in parse_nccl_conf(text))


def environment(root: Path, version: str = "3.11.7") -> FactSet:
    site = root / "env/lib/python3.11/site-packages"
    interpreter = InterpreterFact(
        prefix=str(root / "env"),
        python=str(root / "env/bin/python"),
        version=version,
        is_venv=True,
        site_packages=(str(site),),
    )
    return FactSet([PolicyFact(), interpreter])


def test_compiler_is_gcc_before_clang_on_path(tmp_path: Path) -> None:
    write(tmp_path / "usr/bin/clang", mode=0o755)
    found = read_compiler(subject(tmp_path, PATH="/usr/bin"), environment(tmp_path))
    assert found.path == "/usr/bin/clang"
    write(tmp_path / "usr/bin/gcc", mode=0o755)
    found = read_compiler(subject(tmp_path, PATH="/usr/bin"), environment(tmp_path))
    assert found.path == "/usr/bin/gcc"


@pytest.mark.parametrize(
    ("variable", "path", "wanted"),
    [
        pytest.param("/opt/cc -m64", "/opt/cc", "", id="path-with-options"),
        pytest.param("gcc-13", None, "gcc-13", id="not-here"),
        pytest.param("/etc/plain", None, "/etc/plain", id="not-executable"),
        pytest.param("", "/usr/bin/gcc", "", id="empty"),
    ],
)
def test_compiler_that_cc_names(
    tmp_path: Path, variable: str, path: str | None, wanted: str
) -> None:
    write(tmp_path / "usr/bin/gcc", mode=0o755)
    write(tmp_path / "opt/cc", mode=0o755)
    write(tmp_path / "etc/plain")
    found = read_compiler(subject(tmp_path, PATH="/usr/bin", CC=variable), environment(tmp_path))
    assert (found.path, found.wanted) == (path, wanted)


def test_headers_lie_beside_the_python_behind_the_environment(tmp_path: Path) -> None:
    write(tmp_path / "opt/python/bin/python3.11", mode=0o755)
    (tmp_path / "opt/python/lib").mkdir()
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").symlink_to(tmp_path / "opt/python/bin/python3.11")
    found = read_compiler(subject(tmp_path), environment(tmp_path))
    assert (found.include, found.has_python_h) == ("/opt/python/include/python3.11", False)
    write(tmp_path / "opt/python/include/python3.11/Python.h")
    assert read_compiler(subject(tmp_path), environment(tmp_path)).has_python_h


def test_headers_of_a_python_that_is_not_here_are_unknown(tmp_path: Path) -> None:
    found = read_compiler(subject(tmp_path), environment(tmp_path))
    assert (found.include, found.has_python_h) == (None, None)


def with_gpu(root: Path, capability: str = "12.1") -> FactSet:
    return environment(root).having(nvidia(gpu(capability=capability)))


SAYS = "\0junk\0Cuda compilation tools, release 12.8, V12.8.93\nBuild\0"
BIN = "env/lib/python3.11/site-packages/triton/backends/nvidia/bin"


def test_release_of_ptxas_is_read_from_its_bytes(tmp_path: Path) -> None:
    write(tmp_path / BIN / "ptxas", "\0" * (4 * 1024**2 - 20) + SAYS, mode=0o755)
    path = str(tmp_path / BIN / "ptxas")
    assert read_ptxas(subject(tmp_path), with_gpu(tmp_path)).tools == (
        Ptxas(path=path, release="12.8"),
    )


def test_ptxas_for_blackwell_and_those_of_the_machine(tmp_path: Path) -> None:
    write(tmp_path / BIN / "ptxas", SAYS, mode=0o755)
    write(tmp_path / BIN / "ptxas-blackwell", SAYS.replace("12.8,", "12.9,"), mode=0o755)
    write(tmp_path / "usr/local/cuda-13.0/bin/ptxas", SAYS.replace("12.8,", "13.0,"), mode=0o755)
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.0")
    fact = read_ptxas(subject(tmp_path), with_gpu(tmp_path))
    assert [(tool.release, tool.for_blackwell) for tool in fact.tools] == [
        ("12.8", False),
        ("12.9", True),
    ]
    assert [tool.release for tool in fact.spare] == ["13.0"]
    older = read_ptxas(subject(tmp_path), with_gpu(tmp_path, "9.0"))
    assert ([tool.release for tool in older.tools], older.spare) == (["12.8"], ())


def test_ptxas_that_a_variable_names_comes_first(tmp_path: Path) -> None:
    write(tmp_path / BIN / "ptxas", SAYS, mode=0o644)
    fact = read_ptxas(subject(tmp_path, TRITON_PTXAS_PATH="/no/ptxas"), with_gpu(tmp_path))
    named, bundled = fact.tools
    assert (named.variable, named.error) == ("TRITON_PTXAS_PATH", "No such file or directory")
    assert "executed" in bundled.error


def test_ptxas_is_not_read_without_a_gpu(tmp_path: Path) -> None:
    write(tmp_path / BIN / "ptxas", SAYS, mode=0o755)
    facts = environment(tmp_path).having(NvidiaFact(num_devices=0))
    assert read_ptxas(subject(tmp_path), facts).tools == ()


def test_ptxas_that_is_a_fifo_or_empty(tmp_path: Path) -> None:
    path = write(tmp_path / BIN / "ptxas")
    assert read_ptxas(subject(tmp_path), with_gpu(tmp_path)).tools[0].error == "an empty file"
    path.unlink()
    os.mkfifo(path)
    assert "FIFO" in read_ptxas(subject(tmp_path), with_gpu(tmp_path)).tools[0].error


@pytest.mark.parametrize("read", [read_limits, read_user, read_storage])
def test_mounted_root_does_not_tell_its_processes(tmp_path: Path, read: object) -> None:
    with pytest.raises(LookupError):
        read(subject(tmp_path), NOTHING)  # type: ignore[operator]


def test_user_of_this_process() -> None:
    with tempfile.TemporaryDirectory() as home:
        fact = read_user(here(HOME=home), NOTHING)
        name = pwd.getpwuid(os.getuid()).pw_name
        assert fact == UserFact(
            uid=os.getuid(), has_passwd_entry=True, name=name, home=home, home_writable=True
        )


def test_failures_at_the_end_of_a_log(tmp_path: Path) -> None:
    lines = ["step 1", "RuntimeError: FX to symbolically trace", *["ValueError: x"] * 3, "step 2"]
    log = write(tmp_path / "train.log", "noise\n" * 1_000_000 + "\n".join(lines))
    logs = Subject(prefix=tmp_path, root=tmp_path, logs=(log,))
    assert read_log_records(logs, NOTHING).records == (
        RunRecord(source="/train.log", text="RuntimeError: FX to symbolically trace"),
        RunRecord(source="/train.log", text="ValueError: x"),
    )


FX = "Detected that you are using FX to symbolically trace a dynamo-optimized function"
NOISE = "".join(f"[{number}] OSError: no {number}\n" for number in range(300))


@pytest.mark.parametrize(
    ("log", "text"),
    [
        pytest.param(f"RuntimeError: {FX}", f"RuntimeError: {FX}", id="no-end-of-line"),
        pytest.param(f"w-3 | [rank3]: {FX}. x\n", f"w-3 | [rank3]: {FX}. x", id="no-class"),
        pytest.param(f"\x1b[31mRuntimeError\x1b[0m: {FX}\n", f"RuntimeError: {FX}", id="coloured"),
        pytest.param(f" 5%\r{FX}\r\n", FX, id="behind-a-progress-bar"),
        pytest.param(f"| {FX[:36]} |\n| {FX[36:]} |\n", f"| {FX[:36]} |", id="in-a-frame"),
        pytest.param(f"{FX[:40]}", FX[:40], id="cut-off"),
        pytest.param(f"...{FX[23:]}", f"...{FX[23:]}", id="begun-late"),
        pytest.param(f"{'y' * 900}{FX}{'z' * 900}\n", f"{'y' * 200}{FX}", id="in-a-long-line"),
        pytest.param(f"{FX}\n{NOISE}", FX, id="many-others-follow"),
        pytest.param(f"{FX}\n" + "step\n" * 1_000_000, FX, id="far-from-the-end"),
        pytest.param(f"\0\0\n{FX}\n\xff", FX, id="binary"),
    ],
)
def test_known_failure_is_found_wherever_it_is(tmp_path: Path, log: str, text: str) -> None:
    path = write(tmp_path / "train.log", log)
    records = read_log_records(Subject(prefix=tmp_path, logs=(path,)), NOTHING).records
    assert records[0].text.startswith(text)
    assert len(records[0].text) < 700


def test_known_failure_of_every_step_is_told_a_few_times(tmp_path: Path) -> None:
    path = write(tmp_path / "train.log", "".join(f"{number} {FX}\n" for number in range(10_000)))
    records = read_log_records(Subject(prefix=tmp_path, logs=(path,)), NOTHING).records
    assert [record.text for record in records] == [f"{number} {FX}" for number in range(5)]


@given(st.binary(max_size=2_000))
def test_any_bytes_are_a_log(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.log")
        path.write_bytes(content)
        for text in failures_in(path):
            assert "\n" not in text


def test_log_that_is_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.log")
    with pytest.raises(OSError, match="no regular file"):
        read_log_records(Subject(prefix=tmp_path, logs=(tmp_path / "train.log",)), NOTHING)


def test_services_are_looked_for_only_where_a_gpu_waits() -> None:
    ready = FactSet([nvidia(gpu(fabric="completed"))])
    assert read_services(here(), ready) == ServicesFact()
    waiting = FactSet([nvidia(gpu(fabric="in_progress"))])
    states = dict(read_services(here(), waiting).states)
    assert set(states) <= {"nvidia-fabricmanager"}


def test_kernel_log_is_not_opened_without_a_device() -> None:
    assert read_kernel_log(here(), FactSet([NvidiaFact(num_devices=0)])) == KernelLogFact()


def test_kernel_log_records_of_this_machine_if_they_may_be_read() -> None:
    try:
        fact = read_kernel_log(here(), FactSet([nvidia()]))
    except OSError:
        return
    assert isinstance(fact, KernelLogFact)


def test_glibc_of_a_mounted_root_is_read_from_its_library(tmp_path: Path) -> None:
    text = "\0GNU C Library (Debian GLIBC 2.31-13) stable release version 2.31.\n\0"
    write(tmp_path / "lib/x86_64-linux-gnu/libc.so.6", text)
    fact = read_host(subject(tmp_path), NOTHING)
    assert (fact.glibc, fact.shm_bytes) == ("2.31", None)


def test_host_of_this_machine() -> None:
    fact = read_host(Subject(prefix=Path("/tmp")), NOTHING)
    assert isinstance(fact, HostFact)
    assert fact.disk_free_bytes


def test_paths_of_a_mounted_root(tmp_path: Path) -> None:
    place = subject(tmp_path)
    inside = tmp_path / "usr/lib"
    assert place.locate("/usr/lib") == place.locate(inside) == inside
    assert place.shown(inside) == "/usr/lib"
    assert place.shown("/elsewhere") == "/elsewhere"
    assert place.locate(tmp_path / "env/lib") == tmp_path / "env/lib"


def test_paths_of_this_machine_stay_as_they_are() -> None:
    assert here().locate("/usr/lib") == Path("/usr/lib")
    assert here().shown("/usr/lib") == "/usr/lib"


def test_mounts_and_free_space_of_this_machine() -> None:
    fact = read_storage(here(), NOTHING)
    assert fact.mount_of("/") is not None
    assert fact.free[0][0] == "/tmp"
    assert read_storage(here(TMPDIR="/no/such"), NOTHING).free == ()
