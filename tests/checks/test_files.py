"""Damage to installed files, made in real files and found by the whole tool."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envdoctor.diagnose import Place, gather, judge, policy_of
from envdoctor.facts import PolicyFact
from envdoctor.verdict import Problem, Severity
from tests.environments import CUDNN, CUDNN_PARTS, NCCL, Environment, elf, make_cuda_environment

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
LIBTORCH = "torch/lib/libtorch_cuda.so"
LIBTRITON = "triton/_C/libtriton.so"
PTXAS = "triton/backends/nvidia/bin/ptxas"


def errors(environment: Environment, *, deep: bool = False) -> list[tuple[str, Problem]]:
    place = Place(prefix=environment.prefix, variables={}, deep=deep)
    report = judge(gather(place, policy_of(None, prefix=environment.prefix, expect_gpu=False)))
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
    assert errors(cuda_environment, deep=True) == []


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
    content = elf(f"{path.name[:3]}X{path.name[4:]}")
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
    ("path", "owner"),
    [
        (CUDNN, "nvidia-cudnn-cu12"),
        (CUDNN_PARTS[0], "nvidia-cudnn-cu12"),
        (NCCL, "nvidia-nccl-cu12"),
        (LIBTORCH, "torch"),
        (LIBTRITON, "triton"),
    ],
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


def test_wheel_for_another_machine_is_told_once(cuda_environment: Environment) -> None:
    shutil.rmtree(next(cuda_environment.site.glob("triton-*.dist-info")))
    wheel = b"Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_27_aarch64\n"
    cuda_environment.install(
        "triton",
        "3.6.0",
        {LIBTRITON: elf("libtriton.so", machine=183), "triton-3.6.0.dist-info/WHEEL": wheel},
    )
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-for-another-python", "triton")


def test_fifo_in_place_of_a_library_is_a_finding_and_no_hang(cuda_environment: Environment) -> None:
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


def test_text_in_place_of_a_library_is_told_as_such(cuda_environment: Environment) -> None:
    """An archive fetched without Git LFS holds pointers in place of files."""
    library = cuda_environment.site / NCCL
    library.write_text("version https://git-lfs.github.com/spec/v1\n")
    ((_, problem),) = errors(cuda_environment)
    assert problem.evidence[0].found == "43 bytes, not an ELF object"


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (CUDNN_PARTS[3], "nvidia-cudnn-cu12"),
        (LIBTORCH, "torch"),
        ("torch/__init__.py", "torch"),
        (PTXAS, "triton"),
    ],
)
def test_flipped_bit_is_found_by_hashing_only(
    cuda_environment: Environment, path: str, owner: str
) -> None:
    flip_a_bit(cuda_environment.site / path)
    assert errors(cuda_environment) == []
    ((check, problem),) = errors(cuda_environment, deep=True)
    assert (check, problem.culprit) == ("package-files-damaged", owner)
    assert problem.evidence[0].subject == str(cuda_environment.site / path)
    assert problem.evidence[0].expected.startswith("sha256=")


def test_changed_version_file_is_found_without_deep(cuda_environment: Environment) -> None:
    path = cuda_environment.site / "torch/version.py"
    path.write_text(path.read_text().replace("12.8", "12.9"))
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-files-damaged", "torch")
    assert problem.evidence[0].subject == str(path)


def test_version_file_of_another_release_is_one_finding(cuda_environment: Environment) -> None:
    """RECORD says what was installed: no second command may ask for what the file claims."""
    path = cuda_environment.site / "torch/version.py"
    path.write_text(path.read_text().replace("2.10.0", "2.9.99"))
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-files-damaged", "torch")


@pytest.mark.parametrize("mode", [0o644, 0o600])
@pytest.mark.parametrize(
    ("file", "owner"), [("torch/bin/torch_shm_manager", "torch"), (PTXAS, "triton")]
)
def test_program_that_may_not_be_run(
    cuda_environment: Environment, mode: int, file: str, owner: str
) -> None:
    path = cuda_environment.site / file
    path.chmod(mode)
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-files-damaged", owner)
    assert problem.evidence[0].subject == str(path)
    assert f"mode {mode:o}" in problem.evidence[0].found


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param("#!{}/bin/python\nmain()\n", [], id="first-line-rewritten"),
        pytest.param("", ["nvidia-curand-cu12"], id="emptied"),
    ],
)
def test_script_of_an_environment_that_was_moved(
    cuda_environment: Environment, content: str, told: list[str]
) -> None:
    files = {"nvidia/curand/lib/libcurand.so.10": elf("libcurand.so.10")}
    script = {"../../../bin/tool": b"#!/env/bin/python\nmain()\n"}
    cuda_environment.install("nvidia-curand-cu12", "10.3", files | script)
    (cuda_environment.prefix / "bin/tool").write_text(content.format(cuda_environment.prefix))
    assert [problem.culprit for _, problem in errors(cuda_environment)] == told
    assert [problem.culprit for _, problem in errors(cuda_environment, deep=True)] == told


def test_file_that_packages_share_alike_is_told_once(cuda_environment: Environment) -> None:
    for name in ("nvidia-cublas-cu12", "nvidia-curand-cu12"):
        library = f"nvidia/{name[7:-5]}/lib/lib{name[7:-5]}.so.12"
        soname = library.rpartition("/")[2]
        cuda_environment.install(name, "12.8", {"nvidia/__init__.py": b"", library: elf(soname)})
    assert [check for check, _ in errors(cuda_environment)] == []
    (cuda_environment.site / "nvidia/__init__.py").unlink()
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-files-damaged", "nvidia-cublas-cu12")


def test_lost_libraries_are_told_with_what_takes_them(cuda_environment: Environment) -> None:
    for path in (CUDNN, *CUDNN_PARTS):
        (cuda_environment.site / path).unlink()
    ((_, problem),) = errors(cuda_environment)
    assert "all its 8 shared objects are missing" in problem.message
    assert "another CUDA" in problem.message


def test_libraries_that_several_packages_lost_are_one_finding(
    cuda_environment: Environment,
) -> None:
    for path in (CUDNN, *CUDNN_PARTS, NCCL):
        (cuda_environment.site / path).unlink()
    (cuda_environment.site / LIBTRITON).write_bytes(b"")
    lost, emptied = errors(cuda_environment)
    assert lost[1].culprit == "nvidia-cudnn-cu12, nvidia-nccl-cu12"
    assert len(lost[1].evidence) == 2
    (command,) = lost[1].remedy.commands
    assert "nvidia-cudnn-cu12==" in command
    assert "nvidia-nccl-cu12==" in command
    assert emptied[1].culprit == "triton"


def test_folder_without_permission_asks_for_it(cuda_environment: Environment) -> None:
    """Root may read anything, so another user looks."""
    site = cuda_environment.site
    for folder in (site / "nvidia/cudnn/lib", *site.parents):
        folder.chmod(0o755)
        if folder == cuda_environment.prefix.parents[2]:
            break
    (site / "nvidia/cudnn/lib").chmod(0)
    # All is imported before the rights are given up: the Python itself may lie in root's home.
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.checks.test_files import errors\n"
        "from tests.environments import Environment\n"
        "environment = Environment(Path(sys.argv[1]))\n"
        "errors(environment)\n"
        "if os.getuid() == 0:\n    os.setgroups([])\n    os.setgid(65534)\n    os.setuid(65534)\n"
        "print([(problem.culprit, problem.remedy.kind) for _, problem in errors(environment)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(cuda_environment.prefix)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    (site / "nvidia/cudnn/lib").chmod(0o755)
    assert "('nvidia-cudnn-cu12', 'config-change')" in done.stdout, done.stderr


def test_extension_for_another_python_is_told_by_its_own_check(
    cuda_environment: Environment,
) -> None:
    extension = "torch/_C.cpython-311-x86_64-linux-gnu.so"
    info = next(cuda_environment.site.glob("torch-*.dist-info"))
    content = elf("")
    (cuda_environment.site / extension).write_bytes(content)
    with (info / "RECORD").open("a") as stream:
        stream.write(f"{extension},,{len(content)}\n")
    assert errors(cuda_environment) == []
    (cuda_environment.site / extension).rename(
        cuda_environment.site / extension.replace("311", "312")
    )
    ((check, problem),) = errors(cuda_environment)
    assert check == "package-for-another-python"
    assert "312" in problem.message


def test_package_that_the_profile_asks_for_is_looked_at(cuda_environment: Environment) -> None:
    library = "flashy/_C.so"
    cuda_environment.install("flashy", "1.0", {library: elf("anything.so")})
    (cuda_environment.site / library).write_bytes(elf("anything.so")[:-8])
    assert errors(cuda_environment) == []
    policy = PolicyFact(packages=("flashy",), expect_gpu=False)
    facts = gather(Place(prefix=cuda_environment.prefix, variables={}), policy)
    (problem,) = judge(facts).problems(Severity.ERROR)
    assert problem.culprit == "flashy"
