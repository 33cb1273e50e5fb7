from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from envdoctor.diagnose import diagnose
from envdoctor.verdict import Problem, Severity
from tests.environments import CUDNN, NCCL, Environment, elf, make_cuda_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def errors(environment: Environment) -> list[tuple[str, Problem]]:
    report = diagnose(environment.prefix, expect_gpu=False)
    return [
        (finding.check, finding.outcome)
        for finding in report.findings
        if isinstance(finding.outcome, Problem) and finding.outcome.severity is not Severity.INFO
    ]


@pytest.fixture
def cuda_environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def test_healthy_environment_has_no_problem(cuda_environment: Environment) -> None:
    assert errors(cuda_environment) == []


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_dead_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def replace_by_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def replace_by_text_of_same_size(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


def put_code_for_arm(path: Path) -> None:
    path.write_bytes(elf(path.name, machine=183))


def put_another_library(path: Path) -> None:
    content = elf(path.name[:-1] + "8")
    assert len(content) == path.stat().st_size
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("break_it", "found"),
    [
        pytest.param(remove, "missing", id="removed"),
        pytest.param(empty, "0 bytes", id="truncated-to-nothing"),
        pytest.param(grow, "bytes", id="one-byte-too-long"),
        pytest.param(replace_by_folder, "a folder", id="a-folder"),
        pytest.param(replace_by_dead_link, "missing", id="a-dead-link"),
        pytest.param(replace_by_link_to_itself, "unreadable", id="a-link-to-itself"),
        pytest.param(replace_by_text_of_same_size, "not an ELF object", id="text-of-the-same-size"),
        pytest.param(put_code_for_arm, "aarch64", id="code-for-another-machine"),
        pytest.param(put_another_library, "SONAME", id="another-library"),
    ],
)
@pytest.mark.parametrize(
    ("path", "owner"), [(CUDNN, "nvidia-cudnn-cu12"), (NCCL, "nvidia-nccl-cu12")]
)
def test_damaged_library_is_named_with_its_owner(
    cuda_environment: Environment,
    break_it: Callable[[Path], None],
    found: str,
    path: str,
    owner: str,
) -> None:
    library = cuda_environment.site / path
    break_it(library)
    ((check, problem),) = errors(cuda_environment)
    assert check == "package-files-damaged"
    assert problem.culprit == owner
    assert problem.evidence[0].subject == str(library)
    assert found in problem.evidence[0].found
    assert len(problem.evidence) == 1
    (command,) = problem.remedy.commands
    assert f"{owner}==" in command
    assert str(cuda_environment.prefix) in command


def test_fifo_in_place_of_a_library_is_a_finding_and_no_hang(cuda_environment: Environment) -> None:
    import os  # noqa: PLC0415

    library = cuda_environment.site / CUDNN
    library.unlink()
    os.mkfifo(library)
    ((_, problem),) = errors(cuda_environment)
    assert problem.evidence[0].found == "a FIFO"


def test_gutted_package_is_one_finding(cuda_environment: Environment) -> None:
    """All of a package's files are gone and only its metadata is left."""
    for path in list(cuda_environment.site.glob("nvidia/cudnn/**/*")):
        if path.is_file():
            path.unlink()
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-files-damaged", "nvidia-cudnn-cu12")


def test_required_package_that_is_absent_is_named_with_its_pin(
    cuda_environment: Environment,
) -> None:
    import shutil  # noqa: PLC0415

    shutil.rmtree(next(cuda_environment.site.glob("nvidia_nccl*.dist-info")))
    (cuda_environment.site / NCCL).unlink()
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("required-package-missing", "nvidia-nccl-cu12")
    assert problem.remedy.commands[0].endswith(" nvidia-nccl-cu12==2.27.5")


def test_version_that_is_not_the_pin_is_named(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    info = next(environment.site.glob("triton*.dist-info"))
    text = (info / "METADATA").read_text()
    (info / "METADATA").write_text(text.replace("3.6.0", "3.9.0"))
    ((check, problem),) = errors(environment)
    assert (check, problem.culprit) == ("package-version-not-pinned", "triton")
    assert "3.9.0" in problem.message
    assert "triton==3.6.0" in problem.remedy.commands[0]


def test_placeholder_is_one_finding_that_installs_the_pin(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    import shutil  # noqa: PLC0415

    shutil.rmtree(next(environment.site.glob("nvidia_cudnn*.dist-info")))
    (environment.site / CUDNN).unlink()
    environment.install("nvidia-cudnn-cu12", "0.0.1.dev5")
    ((check, problem),) = errors(environment)
    assert (check, problem.culprit) == ("package-without-libraries", "nvidia-cudnn-cu12")
    assert problem.remedy.commands[0].endswith(" nvidia-cudnn-cu12==9.10.2.21")


def test_pins_are_followed_through_the_toolkit_package(tmp_path: Path) -> None:
    environment = make_cuda_environment(tmp_path / "env")
    metadata = next(environment.site.glob("torch*.dist-info")) / "METADATA"
    metadata.write_text(
        "Name: torch\nVersion: 2.11.0\nRequires-Dist: cuda-toolkit[cublas]==13.0.2\n"
    )
    environment.install(
        "cuda-toolkit",
        "13.0.2",
        requires=[
            'nvidia-cublas==13.1.0.3; extra == "cublas"',
            'nvidia-cufft==12.0.0.61; extra == "cufft"',
        ],
    )
    names = [problem.culprit for _, problem in errors(environment)]
    assert "nvidia-cublas" in names
    assert "nvidia-cufft" not in names


def test_sibling_for_another_cuda_is_uninstalled_before_the_owner_is_reinstalled(
    tmp_path: Path,
) -> None:
    """Installing the cu13 package over cu12 writes the same path; the last one wins."""
    environment = make_cuda_environment(tmp_path / "env")
    environment.install("nvidia-cudnn-cu13", "9.19.0.56", {CUDNN: elf("libcudnn.so.9") + b"newer"})
    ((_, problem),) = errors(environment)
    assert problem.culprit == "nvidia-cudnn-cu12"
    first, second = problem.remedy.commands
    assert "uninstall" in first
    assert first.endswith("nvidia-cudnn-cu13")
    assert second.endswith("nvidia-cudnn-cu12==9.10.2.21")


def test_missing_record_is_a_warning(cuda_environment: Environment) -> None:
    (next(cuda_environment.site.glob("nvidia_nccl*.dist-info")) / "RECORD").unlink()
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.severity) == ("package-without-record", Severity.WARNING)
