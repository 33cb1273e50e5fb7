from __future__ import annotations

import pytest

from envdoctor.checks.ptxas import knows
from envdoctor.facts import (
    CacheFolder,
    CachesFact,
    CompilerFact,
    ContainerFact,
    Fact,
    Ptxas,
    PtxasFact,
    TorchBuildFact,
    UserFact,
)
from envdoctor.verdict import Ok, Severity, Skipped
from tests.machines import gpu, installed, nvidia, problem, severity, torch, variables

BIN = "/env/lib/python3.11/site-packages/triton/backends/nvidia/bin"
GB10 = nvidia(gpu(capability="12.1", name="NVIDIA GB10"))
NO_TRITON = installed("torch==2.10.0")


def ptxas(release: str, **more: object) -> Ptxas:
    fields = {"path": f"{BIN}/ptxas", "release": release}
    return Ptxas(**{**fields, **more})  # type: ignore[arg-type]


def blackwell(release: str) -> Ptxas:
    return ptxas(release, path=f"{BIN}/ptxas-blackwell", for_blackwell=True)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([CompilerFact(path=None)], Severity.ERROR, id="none"),
        pytest.param([CompilerFact(path="/usr/bin/clang")], Ok, id="clang"),
        pytest.param([CompilerFact(path=None), NO_TRITON], Skipped, id="without-triton"),
        pytest.param([CompilerFact(path=None), nvidia(gpus=())], Skipped, id="without-gpu"),
    ],
)
def test_no_c_compiler(facts: list[Fact], expected: object) -> None:
    assert severity("no-c-compiler", *facts) == expected


def test_cc_that_names_nothing_is_its_own_culprit() -> None:
    found = problem("no-c-compiler", CompilerFact(path=None, wanted="gcc-13"))
    assert (found.culprit, found.remedy.kind) == ("CC", "unset-env")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [(True, Ok), (False, Severity.ERROR), (None, Skipped)],
)
def test_python_headers_missing(headers: bool | None, expected: object) -> None:
    fact = CompilerFact(path="/usr/bin/gcc", include="/usr/include/p", has_python_h=headers)
    assert severity("python-headers-missing", fact) == expected


def test_headers_are_installed_by_whoever_builds_the_image() -> None:
    missing = CompilerFact(path="/usr/bin/gcc", include="/usr/include/p", has_python_h=False)
    on_host = problem("python-headers-missing", missing)
    in_image = problem("python-headers-missing", missing, ContainerFact(kind="docker"))
    assert (on_host.owner, in_image.owner) == ("admin", "image")
    assert on_host.remedy.commands == ("sudo apt-get install -y python3.11-dev",)
    assert in_image.remedy.commands == ("apt-get install -y python3.11-dev",)


@pytest.mark.parametrize(
    ("tools", "machine", "expected"),
    [
        pytest.param([ptxas("12.8")], GB10, Severity.ERROR, id="gb10-needs-12.9"),
        pytest.param([ptxas("12.9")], GB10, Ok, id="exactly-the-first"),
        pytest.param([ptxas("12.8"), blackwell("12.9")], GB10, Ok, id="triton-3.6-as-published"),
        pytest.param([ptxas("13.0"), blackwell("12.8")], GB10, Severity.ERROR, id="old-blackwell"),
        pytest.param([ptxas("12.8")], nvidia(), Ok, id="hopper"),
        pytest.param([ptxas("11.4")], nvidia(), Severity.ERROR, id="hopper-with-11.4"),
        pytest.param([ptxas("12.4")], nvidia(gpu(capability="7.0")), Ok, id="volta"),
        pytest.param([ptxas("")], GB10, Skipped, id="release-unknown"),
        pytest.param([], GB10, Skipped, id="no-ptxas"),
        pytest.param(
            [ptxas("13.0", variable="TRITON_PTXAS_PATH", path="/cuda/ptxas"), ptxas("12.8")],
            GB10,
            Ok,
            id="variable-names-a-newer-one",
        ),
        pytest.param(
            [ptxas("13.0", variable="TRITON_PTXAS_PATH", error="No such file"), ptxas("12.8")],
            GB10,
            Severity.ERROR,
            id="variable-names-nothing-so-the-bundled-one-is-taken",
        ),
        pytest.param(
            [ptxas("13.0")], nvidia(gpu(capability="13.7")), Severity.ERROR, id="unheard-of"
        ),
    ],
)
def test_ptxas_too_old(tools: list[Ptxas], machine: Fact, expected: object) -> None:
    assert severity("ptxas-too-old", PtxasFact(tools=tuple(tools)), machine) == expected


def test_old_ptxas_is_a_consequence_where_torch_has_no_code_either() -> None:
    facts = (PtxasFact(tools=(ptxas("12.4"),)), nvidia(gpu(capability="12.0")))
    old = TorchBuildFact(path="/t", version="2.5.1+cu121", cuda="12.1")
    assert severity("gpu-arch-not-in-build", *facts, old) is Severity.ERROR
    assert severity("ptxas-too-old", *facts, old) is Skipped


def test_old_ptxas_shows_late_where_the_cache_holds_kernels() -> None:
    folder = CacheFolder(kind="triton", path="/home/user/.triton/cache", num_entries=3)
    facts = (PtxasFact(tools=(ptxas("12.8"),)), GB10, CachesFact(folders=(folder,)))
    assert severity("ptxas-too-old", *facts) is Severity.WARNING


def test_old_ptxas_that_a_variable_names_is_unset() -> None:
    tools = (ptxas("12.4", variable="TRITON_PTXAS_PATH", path="/old/ptxas"), ptxas("12.9"))
    found = problem("ptxas-too-old", PtxasFact(tools=tools), GB10)
    assert (found.culprit, found.remedy.kind) == ("TRITON_PTXAS_PATH", "unset-env")


def test_newer_ptxas_of_the_machine_is_named() -> None:
    spare = (ptxas("12.4", path="/cuda-12/ptxas"), ptxas("13.0", path="/cuda-13/ptxas"))
    found = problem("ptxas-too-old", PtxasFact(tools=(ptxas("12.8"),), spare=spare), GB10)
    assert found.remedy.commands == ("export TRITON_PTXAS_PATH=/cuda-13/ptxas",)


def test_newer_ptxas_is_installed_where_there_is_none() -> None:
    found = problem("ptxas-too-old", PtxasFact(tools=(ptxas("12.8"),)), GB10)
    assert found.remedy.kind == "set-env"
    assert found.remedy.commands[0].endswith("nvidia-cuda-nvcc")
    assert found.remedy.commands[1].endswith("site-packages/nvidia/cu13/bin/ptxas")


@pytest.mark.parametrize(
    ("release", "capability", "expected"),
    [
        ("12.8", "12.0", True),
        ("12.10", "12.1", True),
        ("12.8", "10.3", False),
        ("12.9", "11.0", False),
        ("13.0", "11.0", True),
    ],
)
def test_releases_are_compared_as_numbers(release: str, capability: str, *, expected: bool) -> None:
    assert knows(release, capability) is expected


def test_ptxas_that_may_not_be_executed() -> None:
    tool = ptxas("12.8", error="it may not be executed")
    assert problem("ptxas-not-executable", PtxasFact(tools=(tool,))).culprit == tool.path
    assert severity("ptxas-not-executable", PtxasFact(tools=(ptxas("12.8"),))) is Ok


NAMELESS = UserFact(uid=1234, has_passwd_entry=False)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([NAMELESS], Severity.ERROR, id="no-entry"),
        pytest.param([NAMELESS, variables(USER="me")], Ok, id="variable-names-the-user"),
        pytest.param([NAMELESS, variables(TORCHINDUCTOR_CACHE_DIR="/c")], Ok, id="cache-is-named"),
        pytest.param([NAMELESS, torch("2.13.0+cu130", "13.0")], Ok, id="torch-does-without"),
        pytest.param([], Ok, id="entry"),
    ],
)
def test_user_without_name(facts: list[Fact], expected: object) -> None:
    assert severity("user-without-name", *facts) == expected
