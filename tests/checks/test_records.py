"""RECORD and METADATA that are gone, cut short, edited or hostile."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envdoctor.verdict import Severity
from tests.checks.test_files import errors
from tests.environments import CUDNN_PARTS, NCCL, Environment, make_cuda_environment

if TYPE_CHECKING:
    from collections.abc import Callable

NCCL_HEADER = "nvidia/nccl/include/nccl.h"


@pytest.fixture
def cuda_environment(tmp_path: Path) -> Environment:
    return make_cuda_environment(tmp_path / "env")


def info_of(environment: Environment, name: str) -> Path:
    return next(environment.site.glob(f"{name.replace('-', '_')}-*.dist-info"))


def edit_version(environment: Environment, name: str, version: str) -> None:
    metadata = info_of(environment, name) / "METADATA"
    text = re.sub(r"(?m)^Version: .*$", f"Version: {version}", metadata.read_text(), count=1)
    metadata.write_text(text)


def test_missing_record_is_a_warning_where_the_library_is_there(
    cuda_environment: Environment,
) -> None:
    (info_of(cuda_environment, "nvidia-nccl-cu12") / "RECORD").unlink()
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.severity) == ("package-without-record", Severity.WARNING)
    assert problem.remedy.commands[0].endswith(" nvidia-nccl-cu12==2.27.5")


def nccl_header(minor: int) -> str:
    return f"#define NCCL_MAJOR 2\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH 5\n"


@pytest.mark.parametrize(
    ("break_it", "found"),
    [
        pytest.param(
            lambda lib: lib.write_bytes(lib.read_bytes() + b"NCCL version 2.19.3+cuda12.3\0"),
            "2.19.3+cuda12.3",
            id="library-states-another-version",
        ),
        pytest.param(
            lambda lib: lib.write_bytes(lib.read_bytes() + b"NCCL version 2.27.5+cuda13.0\0"),
            "2.27.5+cuda13.0",
            id="library-states-another-cuda",
        ),
    ],
)
def test_missing_record_is_an_error_where_the_library_does_not_fit(
    cuda_environment: Environment, break_it: Callable[[Path], None], found: str
) -> None:
    (info_of(cuda_environment, "nvidia-nccl-cu12") / "RECORD").unlink()
    break_it(cuda_environment.site / NCCL)
    problem = next(item for name, item in errors(cuda_environment) if "record" in name)
    assert (problem.culprit, problem.severity) == ("nvidia-nccl-cu12", Severity.ERROR)
    assert problem.evidence[1].found == found


@pytest.mark.parametrize(("minor", "severity"), [(27, Severity.WARNING), (19, Severity.ERROR)])
def test_missing_record_is_judged_by_the_header(
    cuda_environment: Environment, minor: int, severity: Severity
) -> None:
    (info_of(cuda_environment, "nvidia-nccl-cu12") / "RECORD").unlink()
    header = cuda_environment.site / NCCL_HEADER
    header.parent.mkdir()
    header.write_text(nccl_header(minor))
    ((_, problem),) = errors(cuda_environment)
    assert problem.severity == severity


def test_changed_version_is_told_with_the_one_before(cuda_environment: Environment) -> None:
    edit_version(cuda_environment, "nvidia-cudnn-cu12", "9.99.0.21")
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-metadata-edited", "nvidia-cudnn-cu12")
    assert "was installed as 9.10.2.21" in problem.message
    assert problem.remedy.kind == "install-pinned-version"
    assert problem.remedy.commands[0].endswith(" nvidia-cudnn-cu12==9.10.2.21")


def test_changed_version_is_told_though_its_folder_was_renamed(
    cuda_environment: Environment,
) -> None:
    """What fits the hash is the version that torch pins."""
    edit_version(cuda_environment, "triton", "3.4.0")
    before = info_of(cuda_environment, "triton")
    after = before.with_name("triton-3.4.0.dist-info")
    before.rename(after)
    record = after / "RECORD"
    record.write_text(record.read_text().replace(before.name, after.name))
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-metadata-edited", "triton")
    assert problem.remedy.commands[0].endswith(" triton==3.6.0")


def test_edited_requirements_are_a_warning(cuda_environment: Environment) -> None:
    metadata = info_of(cuda_environment, "triton") / "METADATA"
    metadata.write_text(metadata.read_text().replace("long text", "Long text"))
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.severity) == ("package-metadata-edited", Severity.WARNING)


def test_metadata_that_is_gone_is_damage(cuda_environment: Environment) -> None:
    (info_of(cuda_environment, "nvidia-nccl-cu12") / "METADATA").unlink()
    found = [problem.culprit for _, problem in errors(cuda_environment)]
    assert found == ["nvidia-nccl-cu12"]


def test_cudnn_without_record_has_to_be_complete(cuda_environment: Environment) -> None:
    (info_of(cuda_environment, "nvidia-cudnn-cu12") / "RECORD").unlink()
    (cuda_environment.site / CUDNN_PARTS[4]).unlink()
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-without-record", "nvidia-cudnn-cu12")
    assert problem.severity is Severity.ERROR
    assert problem.evidence[1].subject.endswith(CUDNN_PARTS[4])


def replace_by_sparse_gigabytes(record: Path) -> None:
    with record.open("wb") as stream:
        stream.truncate(2 * 1024**3)


def replace_by_fifo(record: Path) -> None:
    record.unlink()
    os.mkfifo(record)


def replace_by_loop(record: Path) -> None:
    record.unlink()
    record.symlink_to(record.name)


def fill_with_nulls(record: Path) -> None:
    record.write_bytes(bytes(record.stat().st_size))


def fill_with_a_long_line(record: Path) -> None:
    record.write_bytes(b"x" * 1024 * 1024)


def cut_short(record: Path) -> None:
    text = record.read_text()
    record.write_text(text[: text.index("RECORD,,") - 30])


def cut_at_a_line(record: Path) -> None:
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:-2]))


def point_outside(record: Path) -> None:
    with record.open("a") as stream:
        stream.write("/etc/passwd,sha256=x,1\n../../../../../../../../etc/shadow,sha256=x,1\n")


def add_a_million_rows(record: Path) -> None:
    with record.open("a") as stream:
        stream.writelines(f"nvidia/nccl/x/{number}.h,,1\n" for number in range(1_000_000))


def add_names_that_are_no_text(record: Path) -> None:
    with record.open("ab") as stream:
        stream.write(b"nvidia/nccl/\xff\xfe\x1b[31m.h,,1\n")


def memory_kib(name: str) -> int:
    """Return a figure of this process's memory, as /proc/self/status names it."""
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if name in one]
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("break_it", "check", "says"),
    [
        (replace_by_sparse_gigabytes, "package-files-damaged", "2147483648 bytes"),
        (replace_by_fifo, "package-without-record", "no RECORD"),
        (replace_by_loop, "package-without-record", "no RECORD"),
        (fill_with_nulls, "package-files-damaged", "lists no file"),
        (fill_with_a_long_line, "package-files-damaged", "lists no file"),
        (cut_short, "record-not-followed", "its last line, which is cut short"),
        (cut_at_a_line, "record-not-followed", "its own row is gone"),
        (point_outside, "record-not-followed", "2 recorded paths out of the environment"),
        (add_a_million_rows, "record-not-followed", "after its first 150000 rows"),
        (add_names_that_are_no_text, "package-files-damaged", "missing"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("deep", [False, True])
def test_hostile_record_costs_a_finding_in_bounded_time_and_memory(
    cuda_environment: Environment,
    break_it: Callable[[Path], None],
    check: str,
    says: str,
    *,
    deep: bool,
) -> None:
    break_it(info_of(cuda_environment, "nvidia-nccl-cu12") / "RECORD")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew: other tests load torch
    before_kib, start = memory_kib("VmRSS"), time.monotonic()
    found = dict(errors(cuda_environment, deep=deep))
    assert time.monotonic() - start < 20
    assert says in found[check].message
    assert found[check].culprit == "nvidia-nccl-cu12"
    assert memory_kib("VmHWM") - before_kib < 256 * 1024


def test_dist_info_that_is_a_file_costs_a_finding(cuda_environment: Environment) -> None:
    info = info_of(cuda_environment, "nvidia-nccl-cu12")
    shutil.rmtree(info)
    info.write_text("x")
    ((check, problem),) = errors(cuda_environment)
    assert (check, problem.culprit) == ("package-without-record", "nvidia-nccl-cu12")


def test_metadata_cannot_bring_an_option_into_a_command(cuda_environment: Environment) -> None:
    edit_version(cuda_environment, "nvidia-nccl-cu12", "1 --index-url http://evil.example/")
    (cuda_environment.site / NCCL).unlink()
    commands = [
        command for _, problem in errors(cuda_environment) for command in problem.remedy.commands
    ]
    assert not any("evil" in command for command in commands)
