from __future__ import annotations

import json
import os
import random
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from envdoctor.caches.surroundings import PROBES
from envdoctor.facts import Gpu, NvidiaFact, PolicyFact
from envdoctor.formats.cache_lines import is_in_order
from envdoctor.probes import registry
from tests.caches.samples import (
    FLEX_KERNEL,
    Bench,
    damage_at_random,
    files_of,
    graph_pickle,
    key,
    triton_key,
    warmed,
    write_flex_kernel,
    write_graph,
    write_inductor,
    write_triton,
)
from tests.environments import elf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from envdoctor.caches.judge import EntryClass

A100 = NvidiaFact(
    num_devices=1,
    driver="580.95.05",
    gpus=(Gpu(index=0, name="NVIDIA A100", capability="8.0", memory_bytes=10**10),),
)
NUM = 17
"""Entries of a warmed bench: 16 of Inductor, one of Triton."""

IS_ROOT = os.getuid() == 0


def reason_of(bench: Bench, kind: EntryClass, *, deep: bool = False) -> str:
    """The reason of the only entry of a class."""
    found = [
        one.reason for survey in bench.survey(deep=deep) for one in survey.judgements
        if one.kind == kind
    ]  # fmt: skip
    (reason,) = set(found)
    return reason


@pytest.mark.parametrize("deep", [False, True])
def test_what_nobody_stamped_is_unknown(tmp_path: Path, *, deep: bool) -> None:
    bench = Bench(tmp_path)
    write_inductor(bench.inductor, mark=bench.around().mark)
    write_triton(bench.triton, 90)
    assert bench.counts(deep=deep).keys() == {"unknown"}
    assert reason_of(bench, "unknown", deep=deep) == "nobody has stamped it"


@pytest.mark.parametrize("deep", [False, True])
def test_what_was_stamped_and_is_untouched_is_valid(tmp_path: Path, *, deep: bool) -> None:
    assert warmed(tmp_path).counts(deep=deep) == {"valid": NUM}


def test_what_is_added_after_the_stamp_is_unknown(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    write_graph(bench.inductor, 77, graph_pickle(77, mark=bench.around().mark))
    assert bench.counts(deep=True) == {"valid": NUM, "unknown": 1}


def test_a_copy_of_a_cache_is_not_vouched_for(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    shutil.copytree(bench.inductor, tmp_path / "copy")
    bench.variables["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "copy")
    assert bench.counts(deep=True) == {"valid": 1, "unknown": NUM - 1}


def touch(path: Path) -> None:
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def test_new_times_leave_it_to_the_content(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    for path in files_of(bench.inductor, bench.triton):
        touch(path)
    assert bench.counts() == {"unknown": NUM}
    assert "--deep" in reason_of(bench, "unknown")
    assert bench.counts(deep=True) == {"valid": NUM}


@pytest.mark.parametrize(
    ("change", "kind", "word"),
    [
        pytest.param(
            lambda bench: setattr(bench, "nvidia", A100), "foreign", "GPU", id="another-gpu"
        ),
        pytest.param(
            lambda bench: setattr(
                bench, "nvidia", NvidiaFact(num_devices=1, driver="590.1.1", gpus=bench.nvidia.gpus)
            ),
            "stale",
            "driver 580.95.05 there, 590.1.1 here",
            id="another-driver",
        ),
        pytest.param(
            lambda bench: bench.variables.update(TORCHINDUCTOR_MAX_AUTOTUNE="1"),
            "stale",
            "TORCHINDUCTOR_MAX_AUTOTUNE=1 here",
            id="another-variable",
        ),
        pytest.param(
            lambda bench: bench.variables.update(TORCHINDUCTOR_COMPILE_THREADS="1"),
            "valid",
            "",
            id="a-variable-without-effect",
        ),
        pytest.param(
            lambda bench: bench.environment.install("triton", "3.7.0", {"triton/x.py": b""}),
            "foreign",
            "triton 3.6.0",
            id="another-triton",
        ),
    ],
)
def test_stamped_in_other_surroundings(
    tmp_path: Path, change: Callable[[Bench], object], kind: EntryClass, word: str
) -> None:
    bench = warmed(tmp_path)
    shutil.rmtree(bench.triton)
    if word.startswith("triton"):
        shutil.rmtree(bench.environment.site / "triton-3.6.0.dist-info")
    change(bench)
    assert bench.counts().keys() == {kind}
    assert word in reason_of(bench, kind)


def test_stale_entries_are_valid_once_they_are_stamped_anew(tmp_path: Path) -> None:
    """A new driver: Inductor and Triton still look all of them up."""
    bench = warmed(tmp_path)
    bench.nvidia = NvidiaFact(num_devices=1, driver="590.1.1", gpus=bench.nvidia.gpus)
    assert bench.counts() == {"stale": NUM}
    assert bench.stamp() == NUM
    assert bench.counts(deep=True) == {"valid": NUM}


def test_entries_of_another_torch_are_foreign_and_it_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    mark = bench.around().mark
    write_graph(bench.inductor, 1, graph_pickle(1, mark=mark))
    shutil.rmtree(bench.environment.site / "torch-2.10.0.dist-info")
    version = b"__version__ = '2.11.0+cu130'\ncuda = '13.0'\n"
    bench.environment.install("torch", "2.11.0", {"torch/version.py": version})
    assert bench.around().mark != mark
    assert bench.counts() == {"foreign": 1}
    assert reason_of(bench, "foreign") == "written by torch 2.10.0+cu128, here is 2.11.0+cu130"


def test_entries_of_an_unknown_torch_are_foreign(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write_graph(bench.inductor, 1, graph_pickle(1, mark="a" * 51))
    assert bench.counts() == {"foreign": 1}
    assert reason_of(bench, "foreign") == "written by another torch, here is 2.10.0+cu128"


def test_kernels_for_another_gpu_are_foreign(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write_triton(bench.triton, 80, 90, 100)
    assert bench.classes() == {
        f"triton/{triton_key(80)}": "foreign",
        f"triton/{triton_key(90)}": "unknown",
        f"triton/{triton_key(100)}": "foreign",
    }
    bench.nvidia = A100
    assert bench.classes(deep=True)[f"triton/{triton_key(80)}"] == "unknown"


def test_the_architecture_of_the_code_itself_counts_when_deep(tmp_path: Path) -> None:
    """Metadata for this GPU beside code for another one."""
    bench = Bench(tmp_path)
    write_triton(bench.triton, 80, 90)
    code = (bench.triton / triton_key(80) / "scale.cubin").read_bytes()
    (bench.triton / triton_key(90) / "scale.cubin").write_bytes(code)
    assert bench.classes(deep=True)[f"triton/{triton_key(90)}"] == "foreign"


def test_a_kernel_that_a_training_compiled_is_valid_on_its_gpu_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write_flex_kernel(bench.triton)
    name = f"triton/{FLEX_KERNEL}"
    assert bench.classes(deep=True) == {name: "unknown"}
    bench.stamp()
    assert bench.classes() == bench.classes(deep=True) == {name: "valid"}
    bench.nvidia = A100
    assert bench.classes() == bench.classes(deep=True) == {name: "foreign"}


@pytest.mark.parametrize(
    "suffix", ["json", "cubin", "ptx", "llir", "ttir", "ttgir", "source", "__grp__"]
)
def test_any_file_of_a_compiled_kernel_that_is_cut_short_is_found(
    tmp_path: Path, suffix: str
) -> None:
    bench = Bench(tmp_path)
    entry = write_flex_kernel(bench.triton)
    bench.stamp()
    pattern = "__grp__*" if suffix == "__grp__" else f"triton_*.{suffix}"
    (path,) = entry.glob(pattern)
    state, content = path.stat(), path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert bench.classes(deep=True) == {f"triton/{FLEX_KERNEL}": "corrupt"}


def test_a_moved_triton_cache_is_stale(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    bench.triton.rename(tmp_path / "user/moved")
    bench.variables["TRITON_CACHE_DIR"] = str(tmp_path / "user/moved")
    shutil.rmtree(bench.inductor)
    assert bench.counts() == {"stale": 1}
    assert "the cache was moved here" in reason_of(bench, "stale")


@pytest.mark.skipif(not IS_ROOT, reason="only root can give files away")
def test_files_of_another_user_are_foreign(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    path = next(bench.inductor.glob("*/c*.py"))
    os.chown(path, 4321, 4321)
    assert bench.counts() == {"valid": NUM - 1, "foreign": 1}
    assert reason_of(bench, "foreign") == "it belongs to uid 4321, not to uid 0"


def drop(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    path.write_bytes(b"\0garbage" * (path.stat().st_size // 8 + 1))


def link(path: Path) -> None:
    target = path.with_name("elsewhere.txt")
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize("damage", [empty, halve, garble, link])
@pytest.mark.parametrize(
    "pattern",
    [
        "fxgraph/*/*/*",
        "aotautograd/*/*",
        "??/c*.so",
        "??/*.best_config",
        "cache/*",
        "../triton/*/scale.json",
        "../triton/*/__grp__scale.json",
    ],
)
def test_damage_is_seen_without_stamp_and_without_deep(
    tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    bench = Bench(tmp_path)
    write_inductor(bench.inductor, mark=bench.around().mark)
    write_triton(bench.triton, 90)
    path = min(bench.inductor.glob(pattern))
    damage(path)
    found = bench.counts()
    assert found["corrupt"] == 1, bench.classes()


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("??/c*.py", halve),
        ("??/c*.py", garble),
        ("??/c*.cpp", garble),
        ("../triton/*/scale.cubin", halve),
        ("../triton/*/scale.cubin", garble),
        ("../triton/*/scale.ptx", garble),
        ("../triton/*/scale.cubin", drop),
        ("../triton/*/scale.json", drop),
    ],
)
def test_damage_is_seen_without_stamp_when_deep(
    tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    bench = Bench(tmp_path)
    write_inductor(bench.inductor, mark=bench.around().mark)
    write_triton(bench.triton, 90)
    path = min(bench.inductor.glob(pattern))
    damage(path)
    if path.suffix == ".py" and damage is halve:
        path.write_text("def cut(")
    assert bench.counts(deep=True)["corrupt"] == 1, bench.classes(deep=True)


def test_left_over_temporaries_and_locks_are_corrupt_and_those_in_use_are_not(
    tmp_path: Path,
) -> None:
    bench = warmed(tmp_path)
    gone, here = 2**22 - 1, os.getpid()
    folder = bench.inductor / "zz"
    folder.mkdir()
    (folder / f".{gone}.139.tmp").write_bytes(b"half")
    (folder / f".{here}.139.tmp").write_bytes(b"half")
    for pid in (gone, here):
        inner = bench.triton / ("K" * 52) / f"tmp.pid_{pid}_0123"
        inner.mkdir(parents=True)
        (inner / "kernel.json").write_text("{")
    (bench.inductor / "locks/full.lock").write_text("123")
    found = bench.classes()
    assert found[f"inductor/zz/.{gone}.139.tmp"] == "corrupt"
    assert found[f"inductor/zz/.{here}.139.tmp"] == "unknown"
    assert found[f"triton/{'K' * 52}/tmp.pid_{gone}_0123"] == "corrupt"
    assert found[f"triton/{'K' * 52}/tmp.pid_{here}_0123"] == "unknown"
    assert found["inductor/locks/full.lock"] == "corrupt"


def test_an_entry_that_is_gone_is_told(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    name = key("c", 1)
    (bench.inductor / name[1:3] / f"{name}.py").unlink()
    shutil.rmtree(bench.triton)
    missing = [path for survey in bench.survey() for path in survey.missing]
    assert missing == [f"{name[1:3]}/{name}", triton_key(90)]
    assert bench.counts() == {"valid": NUM - 2}


def test_a_renamed_file_is_corrupt_under_its_new_name(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    name = key("c", 1)
    path = bench.inductor / name[1:3] / f"{name}.py"
    path.rename(path.with_name(f"{key('c', 999)}.py"))
    assert bench.counts(deep=True) == {"valid": NUM - 1, "corrupt": 1}
    assert "it was renamed" in reason_of(bench, "corrupt", deep=True)


def test_code_for_another_processor_is_foreign(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    write_inductor(bench.inductor, mark=bench.around().mark, number=1)
    (path,) = bench.inductor.glob("??/*.so")
    path.write_bytes(elf("kernel.so", machine=183))
    assert reason_of(bench, "foreign").startswith("code for aarch64")


def test_a_cache_that_lies_in_another_is_looked_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.variables["TRITON_CACHE_DIR"] = str(bench.inductor / "kernels")
    write_inductor(bench.inductor, mark=bench.around().mark, number=1)
    write_triton(bench.inductor / "kernels", 90)
    classes = bench.classes()
    assert [path for path in classes if "scale" in path or triton_key(90) in path] == [
        f"triton/{triton_key(90)}"
    ]
    bench.variables["TRITON_CACHE_DIR"] = str(bench.inductor)
    write_triton(bench.inductor, 90)
    assert bench.classes()[f"inductor/{triton_key(90)}"] == "unknown"


def test_no_random_damage_leaves_an_entry_valid(tmp_path: Path) -> None:
    """The real caches of the slow tests get a thousand; this is the quick part of it."""
    bench = warmed(tmp_path)
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "user", saved)
    chance = random.Random(20261130)  # noqa: S311  the same damage in every run
    for _ in range(60):
        path = chance.choice(files_of(bench.inductor, bench.triton))
        way = damage_at_random(path, chance)
        found = bench.counts(deep=True)
        assert found.pop("valid") == NUM - 1, (way, path)
        assert found.keys() <= {"corrupt", "foreign", "unknown"}, (way, path)
        shutil.rmtree(tmp_path / "user")
        shutil.copytree(saved, tmp_path / "user")


def test_metadata_of_a_stamped_kernel_for_another_gpu(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    path = bench.triton / triton_key(90) / "scale.json"
    data = json.loads(path.read_text())
    data["target"]["arch"] = 80
    path.write_text(json.dumps(data))
    assert bench.counts(deep=True) == {"valid": NUM - 1, "corrupt": 1}


def test_files_that_are_no_caches_are_left_alone(tmp_path: Path) -> None:
    """A variable that names a folder of one's own does not make its files prunable."""
    bench = Bench(tmp_path)
    for name in ("__init__.py", "go/main.py", "locks/db", "locks/x", "cache/notes", "ab/empty.so"):
        path = bench.inductor / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("kernel.json", "project/x.json", "project/x.cubin"):
        path = bench.triton / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{")
    assert bench.counts() == bench.counts(deep=True) == {"unknown": 9}


def test_the_facts_are_read_as_a_check_reads_them() -> None:
    """The probes are listed apart from the registry for the sake of the start alone."""
    kinds = [kind for kind, _ in PROBES]
    mine = [probe for kind, probe in PROBES if kind is not PolicyFact]
    every = [probe for kind, probe in registry.PROBES if kind in kinds and kind is not PolicyFact]
    assert mine == every
    assert [kind for kind, _ in registry.PROBES if kind in kinds] == kinds


def test_what_is_no_folder_is_not_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.inductor.write_text("a file")
    found = {survey.place.kind: survey for survey in bench.survey()}
    assert found["inductor"].unread == ("it is no folder",)
    assert {kind: is_in_order(survey) for kind, survey in found.items()} == {
        "inductor": False, "headers": True, "triton": True, "flashinfer": True, "cuda": True,
    }  # fmt: skip


@pytest.mark.skipif(IS_ROOT, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_not_in_order(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    for path in (bench.inductor, bench.inductor / "fxgraph"):
        path.chmod(0)
        survey = bench.survey()[0]
        path.chmod(0o700)
        assert survey.unread == (f"{path}/: Permission denied",)
        assert not is_in_order(survey)


@pytest.mark.skipif(IS_ROOT, reason="root reads everything")
def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    next(bench.inductor.glob("??/*.so")).chmod(0)
    assert bench.counts(deep=True) == {"valid": NUM - 1, "unknown": 1}


def test_what_is_too_large_to_be_read_is_unknown(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    path = bench.inductor / "ab" / f"{key('c', 1)}.py"
    path.parent.mkdir(parents=True)
    with path.open("wb") as stream:
        stream.truncate(600 * 1024**2)
    assert bench.counts(deep=True) == {"unknown": 1}
