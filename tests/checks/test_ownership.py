"""Paths that several packages own, in real files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from envdoctor.facts import SharedPaths
from envdoctor.verdict import Severity
from tests.checks.test_files import errors
from tests.environments import (
    CUDNN,
    CUDNN_PARTS,
    NCCL,
    Environment,
    elf,
    make_cuda_environment,
    make_environment,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEADER = "nvidia/cudnn/include/cudnn_version.h"


@pytest.fixture
def cuda_environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def cudnn(padding: bytes) -> dict[str, bytes]:
    """Return the files of a cuDNN; equal padding gives equal sizes, not equal contents."""
    return {path: elf(path.rpartition("/")[2]) + padding for path in (CUDNN, *CUDNN_PARTS)}


@pytest.mark.parametrize(
    ("padding", "deep"),
    [
        pytest.param(b"longer", False, id="another-size"),
        pytest.param(b"longer", True, id="another-size-hashed"),
    ],
)
def test_intruder_is_uninstalled_before_the_owner_is_reinstalled(
    cuda_environment: Environment, padding: bytes, *, deep: bool
) -> None:
    """Installing the cu13 package over cu12 writes the same paths; the last one wins."""
    cuda_environment.install("nvidia-cudnn-cu13", "9.19.0.56", cudnn(padding))
    found = [item for item in errors(cuda_environment, deep=deep) if item[1].severity == "error"]
    ((check, problem),) = found
    assert (check, problem.culprit) == ("package-files-overwritten", "nvidia-cudnn-cu13")
    assert "nvidia-cudnn-cu13 wrote last, 8 of 8 hold its contents" in problem.message
    assert problem.evidence[0].subject.endswith(".so.9")
    assert problem.remedy.kind == "uninstall-then-reinstall"
    first, second = problem.remedy.commands
    assert "uninstall" in first
    assert first.endswith(" nvidia-cudnn-cu13")
    assert second.endswith(" nvidia-cudnn-cu12==9.10.2.21")


def test_intruder_that_was_overwritten_again_is_still_named(
    cuda_environment: Environment,
) -> None:
    cuda_environment.install("nvidia-cudnn-cu13", "9.19.0.56", cudnn(b"longer"))
    for path, content in cudnn(b"").items():
        (cuda_environment.site / path).write_bytes(content)
    ((check, problem),) = [item for item in errors(cuda_environment) if item[1].severity == "error"]
    assert (check, problem.culprit) == ("package-files-overwritten", "nvidia-cudnn-cu13")
    assert "nvidia-cudnn-cu12 wrote last" in problem.message
    assert "uninstalling either deletes them" in problem.message


@pytest.mark.parametrize("deep", [False, True])
def test_equal_sizes_are_told_apart_by_hash(cuda_environment: Environment, *, deep: bool) -> None:
    """Sizes agree; small files are hashed in any case, large ones with --deep."""
    other = cuda_environment.site / CUDNN
    content = bytearray(other.read_bytes())
    content[-1] ^= 1
    cuda_environment.install("nvidia-cudnn-cu13", "9.19.0.56", {CUDNN: bytes(content)})
    ((_, problem),) = [
        item for item in errors(cuda_environment, deep=deep) if item[1].severity == "error"
    ]
    assert "nvidia-cudnn-cu13 wrote last, 1 of 1 hold its contents" in problem.message
    assert problem.evidence[0].found.startswith("sha256=") or "bytes" in problem.evidence[0].found


def test_required_package_stays_whoever_wrote_last(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    environment.install("nvidia-nccl-cu13", "2.28.9", {NCCL: elf("libnccl.so.2") + b"x"})
    ((_, problem),) = [item for item in errors(environment) if item[1].severity == "error"]
    assert problem.culprit == "nvidia-nccl-cu13"


def test_package_that_requires_the_intruder_asks_for_an_environment_of_its_own(
    cuda_environment: Environment,
) -> None:
    cuda_environment.install("nvidia-nccl-cu13", "2.28.9", {NCCL: elf("libnccl.so.2") + b"x"})
    cuda_environment.install("cupy-like", "1.0", requires=["nvidia-nccl-cu13>=2.28"])
    ((_, problem),) = [item for item in errors(cuda_environment) if item[1].severity == "error"]
    assert problem.remedy.kind == "separate-environments"
    assert "cupy-like requires nvidia-nccl-cu13" in problem.remedy.text


def test_package_of_any_name_that_wrote_over_torch_is_named(
    cuda_environment: Environment,
) -> None:
    files = {"torch/lib/libtorch_cuda.so": elf("libtorch_cuda.so") + b"patched"}
    cuda_environment.install("fast-torch-patch", "1.0", files)
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-files-overwritten", "fast-torch-patch")
    assert problem.remedy.commands[1].endswith(" torch==2.10.0")


def test_other_damage_of_the_owner_is_told_beside_the_collision(
    cuda_environment: Environment,
) -> None:
    cuda_environment.install("nvidia-nccl-cu13", "2.28.9", {NCCL: elf("libnccl.so.2") + b"x"})
    (cuda_environment.site / CUDNN_PARTS[2]).unlink()
    found = [item for item in errors(cuda_environment) if item[1].severity == "error"]
    assert [problem.culprit for _, problem in found] == ["nvidia-cudnn-cu12", "nvidia-nccl-cu13"]


def test_equal_contents_are_a_note(cuda_environment: Environment) -> None:
    content = (cuda_environment.site / NCCL).read_bytes()
    cuda_environment.install("nvidia-nccl-cu13", "2.27.5", {NCCL: content})
    assert [item for item in errors(cuda_environment) if item[1].severity == Severity.ERROR] == []


def test_uninstall_puts_back_what_others_recorded_too() -> None:
    from envdoctor.facts import (  # noqa: PLC0415
        Distribution,
        DistributionsFact,
        PolicyFact,
        RecordsFact,
    )
    from envdoctor.reinstalls import uninstall_safely  # noqa: PLC0415

    names = ("nvidia-a-cu12", "nvidia-b-cu12", "nvidia-c-cu12")
    installed = DistributionsFact(
        distributions=tuple(Distribution(name=name, version="1", path=name) for name in names)
    )
    records = RecordsFact(distributions=(), shared=(SharedPaths(owners=names),))
    policy = PolicyFact(pip_install="I", pip_uninstall="U")
    assert uninstall_safely(names[:1], records, installed, policy) == (
        "U nvidia-a-cu12",
        "I nvidia-b-cu12==1",
    )
    assert uninstall_safely(names, records, installed, policy) == (f"U {' '.join(names)}",)


def cuda13_environment(prefix: Path) -> Environment:
    """Make an environment with a torch for CUDA 13 and its runtime."""
    environment = make_environment(prefix)
    environment.install(
        "torch",
        "2.11.0",
        {
            "torch/version.py": b"__version__ = '2.11.0+cu130'\ncuda = '13.0'\n",
            "torch/lib/libtorch_cuda.so": elf("libtorch_cuda.so"),
        },
        ["nvidia-cuda-runtime==13.0.96"],
    )
    runtime = {"nvidia/cu13/lib/libcudart.so.13": elf("libcudart.so.13")}
    environment.install("nvidia-cuda-runtime", "13.0.96", runtime)
    return environment


def install_cuda12(environment: Environment, name: str, requires: Sequence[str] = ()) -> Path:
    library = f"nvidia/{name}/lib/lib{name}.so.12"
    files = {"nvidia/__init__.py": b"", library: elf(library.rpartition("/")[2])}
    return environment.install(f"nvidia-{name}-cu12", "12.8.4.1", files, requires)


def test_packages_of_another_cuda_that_nothing_requires_are_one_warning(tmp_path: Path) -> None:
    environment = cuda13_environment(tmp_path / "env")
    assert errors(environment) == []
    install_cuda12(environment, "cublas")
    install_cuda12(environment, "cudnn", ["nvidia-cublas-cu12"])
    ((check, problem),) = errors(environment)
    assert (check, problem.severity) == ("cuda-package-orphaned", Severity.WARNING)
    assert problem.culprit == "nvidia-cublas-cu12, nvidia-cudnn-cu12"
    (command,) = problem.remedy.commands
    assert command.endswith(" nvidia-cublas-cu12 nvidia-cudnn-cu12")


@pytest.mark.parametrize(
    "line", ["nvidia-cublas-cu12", "nvidia-cublas-cu12>=12; extra == 'cuda12'"]
)
def test_what_another_package_names_is_no_orphan(tmp_path: Path, line: str) -> None:
    environment = cuda13_environment(tmp_path / "env")
    install_cuda12(environment, "cublas", ["nvidia-nvjitlink-cu12"])
    install_cuda12(environment, "nvjitlink")
    environment.install("jax-like", "1.0", requires=[line])
    assert errors(environment) == []


def test_orphan_that_was_asked_for_is_a_note(tmp_path: Path) -> None:
    """faster-whisper, for one, tells its users to install cuBLAS beside it."""
    environment = cuda13_environment(tmp_path / "env")
    (install_cuda12(environment, "cublas") / "REQUESTED").touch()
    assert errors(environment) == []


def test_placeholder_that_nothing_requires_is_a_warning(tmp_path: Path) -> None:
    environment = cuda13_environment(tmp_path / "env")
    environment.install("nvidia-cublas-cu13", "0.0.1")
    ((check, problem),) = errors(environment)
    assert (check, problem.culprit) == ("package-without-libraries", "nvidia-cublas-cu13")
    assert problem.severity is Severity.WARNING


def test_packages_that_left_together_are_one_finding(tmp_path: Path) -> None:
    """`pip install --no-deps torch` over a torch for another CUDA."""
    environment = make_cuda_environment(tmp_path / "env")
    for info in environment.site.glob("nvidia_*.dist-info"):
        shutil.rmtree(info)
    shutil.rmtree(environment.site / "nvidia")
    ((check, problem),) = errors(environment)
    assert check == "required-package-missing"
    assert problem.culprit == "nvidia-cudnn-cu12, nvidia-nccl-cu12"
    (command,) = problem.remedy.commands
    assert command.endswith(" nvidia-cudnn-cu12==9.10.2.21 nvidia-nccl-cu12==2.27.5")
