from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from envdoctor.caches.export import export
from envdoctor.caches.move import import_cache
from envdoctor.errors import IntegrityError, SpaceError, UsageError, VerificationError
from envdoctor.facts import Gpu, NvidiaFact
from envdoctor.probes.cache_places import cache_places
from tests.caches.samples import Bench, files_of, graph_pickle, triton_key, warmed, write_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from envdoctor.caches.move import Imported

A100 = NvidiaFact(
    num_devices=1,
    driver="580.95.05",
    gpus=(Gpu(index=0, name="NVIDIA A100", capability="8.0", memory_bytes=10**10),),
)


def exported(bench: Bench) -> Path:
    target = bench.folder / "moved.cache"
    export(bench.survey(deep=True), bench.around().fingerprint, target)
    return target


def taken_in(bench: Bench, source: Path, *, force: bool = False) -> Imported:
    places = cache_places(bench.subject, bench.facts)
    return import_cache(source, places, bench.around().fingerprint, home=bench.home, force=force)


def test_a_wiped_cache_comes_back_valid(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    before = {path: path.read_bytes() for path in files_of(bench.inductor, bench.triton)}
    source = exported(bench)
    shutil.rmtree(bench.inductor)
    shutil.rmtree(bench.triton)
    shutil.rmtree(bench.home)
    done = taken_in(bench, source)
    assert (done.num_new, done.num_present, done.num_stamped) == (len(before), 0, len(before))
    assert bench.counts(deep=True) == {"valid": 17}
    after = {path: path.read_bytes() for path in files_of(bench.inductor, bench.triton)}
    groups = {path for path in before if path.name.startswith("__grp__")}
    assert {path: json.loads(before[path]) for path in groups} == {
        path: json.loads(after[path]) for path in groups
    }
    assert {path: after[path] for path in after.keys() - groups} == {
        path: before[path] for path in before.keys() - groups
    }


def test_it_comes_to_another_machines_folders_and_its_groups_with_it(tmp_path: Path) -> None:
    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there")
    taken_in(there, exported(here))
    assert there.counts(deep=True) == {"valid": 17}
    group = json.loads((there.triton / triton_key(90) / "__grp__scale.json").read_text())
    assert {os.path.dirname(path) for path in group["child_paths"].values()} == {  # noqa: PTH120
        str(there.triton / triton_key(90))
    }
    assert not [path for path in there.inductor.iterdir() if path.name.endswith(".tmp")]


def test_what_nobody_stamped_stays_unknown(tmp_path: Path) -> None:
    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there")
    write_graph(here.inductor, 55, graph_pickle(55, mark=here.around().mark))
    write_graph(here.inductor, 56, graph_pickle(56, mark="c" * 51)).write_bytes(b"")
    taken_in(there, exported(here))
    assert there.counts() == {"valid": 17, "unknown": 1}


def test_another_fingerprint_is_refused_unless_told(tmp_path: Path) -> None:
    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there", nvidia=A100)
    source = exported(here)
    with pytest.raises(VerificationError, match="NVIDIA H200 sm_90 there, NVIDIA A100 sm_80 here"):
        taken_in(there, source)
    assert not there.inductor.exists()
    taken_in(there, source, force=True)
    assert there.counts() == {"foreign": 17}


def test_nothing_is_replaced(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    source = exported(bench)
    path = next(bench.inductor.glob("??/*.py"))
    path.write_text("mine = 1\n")
    gone = next(bench.inductor.glob("??/*.so"))
    gone.unlink()
    with pytest.raises(IntegrityError, match="is there with another content"):
        taken_in(bench, source)
    assert path.read_text() == "mine = 1\n"
    assert not gone.exists()


def test_a_second_import_finds_all_of_it(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    source = exported(bench)
    next(bench.inductor.glob("??/*.so")).unlink()
    done = taken_in(bench, source)
    assert (done.num_new, bench.counts()) == (1, {"valid": 17})
    assert taken_in(bench, source).num_new == 0


def rewritten(source: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> Path:
    """An archive whose manifest and members were changed by hand, in their order."""
    with tarfile.open(source, "r:gz") as archive:
        members = {
            member.name: stream.read()
            for member in archive.getmembers()
            if (stream := archive.extractfile(member))
        }
    manifest = json.loads(members.pop("manifest.json"))
    change(manifest, members)
    target = source.with_name("changed.cache")
    with tarfile.open(target, "w:gz") as archive:
        for name, content in {"manifest.json": json.dumps(manifest).encode(), **members}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target


def set_path(path: str) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    return lambda manifest, _: manifest["files"][0].__setitem__(1, path)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(set_path("../../evil.py"), id="up"),
        pytest.param(set_path("/etc/cron.d/evil"), id="absolute"),
        pytest.param(set_path("ab/../../../evil.py"), id="up-inside"),
        pytest.param(set_path("ab//evil.py"), id="empty-part"),
        pytest.param(set_path("ab/evil\n.py"), id="newline"),
        pytest.param(set_path(".1.2.tmp"), id="a-temporary"),
        pytest.param(set_path("locks/x.lock"), id="a-lock"),
        pytest.param(set_path("x" * 5000), id="long"),
        pytest.param(lambda m, _: m["files"][0].__setitem__(0, "cuda"), id="the-drivers"),
        pytest.param(lambda m, _: m["files"][0].__setitem__(0, "home"), id="no-cache"),
        pytest.param(lambda m, _: m["files"][0].__setitem__(2, -1), id="negative-size"),
        pytest.param(lambda m, _: m["files"][0].__setitem__(3, "00"), id="no-hash"),
        pytest.param(lambda m, _: m["files"].append(m["files"][0]), id="twice"),
        pytest.param(lambda m, _: m.update(schema=99), id="another-form"),
        pytest.param(lambda m, _: m.pop("fingerprint"), id="no-fingerprint"),
        pytest.param(lambda _, f: f.update({"files/3": b"other"}), id="another-content"),
        pytest.param(lambda _, f: f.update({"files/3": f["files/3"] + b"x"}), id="longer"),
        pytest.param(lambda _, f: f.popitem(), id="a-member-less"),
        pytest.param(lambda _, f: f.update({"../evil": b"x"}), id="a-member-more"),
        pytest.param(lambda m, f: (m["files"].clear(), f.clear()), id="nothing"),
    ],
)
def test_a_forged_archive_leaves_everything_as_it_was(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]
) -> None:
    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there")
    source = rewritten(exported(here), change)
    with pytest.raises(IntegrityError):
        taken_in(there, source)
    assert files_of(there.folder / "user") == []
    assert not list(tmp_path.glob("**/evil*"))


def test_a_group_that_points_elsewhere_is_refused(tmp_path: Path) -> None:
    import hashlib  # noqa: PLC0415  to forge what is checked

    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there")

    def change(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        (index,) = [i for i, file in enumerate(manifest["files"]) if "__grp__" in file[1]]
        content = json.dumps({"child_paths": {"scale.cubin": "/home/evil/other.cubin"}}).encode()
        members[f"files/{index}"] = content
        manifest["files"][index][2:4] = [len(content), hashlib.sha256(content).hexdigest()]

    with pytest.raises(IntegrityError, match="which is not in it"):
        taken_in(there, rewritten(exported(here), change))
    assert files_of(there.folder / "user") == []


def test_links_in_the_way_are_not_followed(tmp_path: Path) -> None:
    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there")
    source = exported(here)
    outside = tmp_path / "outside"
    outside.mkdir()
    there.inductor.mkdir()
    (there.inductor / "fxgraph").symlink_to(outside)
    with pytest.raises(Exception, match="cannot be written"):
        taken_in(there, source)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        *(
            pytest.param(lambda content, keep=keep: content[:keep], id=f"to-{keep}")
            for keep in (0, 10, 500, -2000, -9, -1)
        ),
        pytest.param(lambda content: content + b"more", id="longer"),
        pytest.param(lambda content: content + content, id="twice"),
        pytest.param(lambda content: content[:-8] + b"\0\0\0\0" + content[-4:], id="checksum"),
    ],
)
def test_a_cut_or_longer_archive_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there")
    source = exported(here)
    source.write_bytes(change(source.read_bytes()))
    with pytest.raises(IntegrityError):
        taken_in(there, source)
    assert files_of(there.folder / "user") == []


def test_no_archive_and_no_cache(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        taken_in(bench, tmp_path / "none")
    for source in (tmp_path, Path("/dev/null")):
        with pytest.raises(UsageError, match="no regular file"):
            taken_in(bench, source)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no regular file"):
        taken_in(bench, tmp_path / "pipe")
    with pytest.raises(UsageError, match="no cache holds anything"):
        exported(bench)
    bench = warmed(tmp_path / "more")
    source = exported(bench)
    with pytest.raises(UsageError, match="is there already"):
        exported(bench)
    assert [path.name for path in source.parent.glob(".moved*")] == []
    source.unlink()
    source.symlink_to("nowhere")
    with pytest.raises(UsageError, match="is there already"):
        exported(bench)


def test_a_cache_that_was_not_read_as_a_whole_is_not_exported(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    (tmp_path / "outside").mkdir()
    (bench.inductor / "zz").symlink_to(tmp_path / "outside")
    with pytest.raises(VerificationError, match=f"not read: what lies in {tmp_path}/outside"):
        exported(bench)
    assert not list(tmp_path.glob("*.cache"))


def test_without_a_home_for_stamps_an_import_is_one_line(tmp_path: Path) -> None:
    here, there = warmed(tmp_path / "here"), Bench(tmp_path / "there")
    there.home.write_text("no folder")
    with pytest.raises(SpaceError, match=f"stamps cannot be written below {there.home}"):
        taken_in(there, exported(here))
    assert list(there.inductor.glob(".*")) == []
