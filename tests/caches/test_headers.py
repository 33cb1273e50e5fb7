"""Precompiled C++ headers: Inductor keeps them in its default folder whatever its variable says."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from envdoctor.caches.export import export
from envdoctor.caches.unpack import Archive
from envdoctor.probes.cache_places import headers_place, inductor_place
from tests.caches.samples import Bench, key, warmed

if TYPE_CHECKING:
    from pathlib import Path


def write_header(bench: Bench) -> Path:
    """Write what torch and g++ leave: a header, what it was compiled to, and a lock."""
    folder = bench.folder / "user/torchinductor_me/precompiled_headers"
    (folder / "locks").mkdir(parents=True)
    name = key("c", 900)
    (folder / f"{name}.h").write_text("#include <torch/x.h>\n")
    (folder / f"{name}.h.gch").write_bytes(b"gpch+014" + bytes(5000))
    (folder / f"locks/{name}.lock").touch()
    return folder / f"{name}.h.gch"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return warmed(tmp_path)


ENTRY = f"headers/{key('c', 900)}"


def test_they_are_a_cache_of_their_own(bench: Bench) -> None:
    write_header(bench)
    assert bench.classes(deep=True)[ENTRY] == "unknown"
    bench.stamp()
    assert bench.classes(deep=True)[ENTRY] == bench.classes()[ENTRY] == "valid"
    assert bench.counts() == {"valid": 18}


@pytest.mark.parametrize("deep", [False, True])
def test_what_is_no_precompiled_header_is_corrupt(bench: Bench, *, deep: bool) -> None:
    path = write_header(bench)
    path.write_bytes(b"x" + path.read_bytes())
    assert bench.classes(deep=deep)[ENTRY] == "corrupt"


def test_they_are_not_exported(bench: Bench) -> None:
    write_header(bench)
    bench.stamp()
    target = bench.folder / "moved.cache"
    export(bench.survey(deep=True), bench.around().fingerprint, target)
    archive = Archive(target)
    assert {file.kind for file in archive.manifest.files} == {"inductor", "triton"}
    archive.close()


def test_without_the_variable_they_lie_in_inductors_cache(bench: Bench) -> None:
    """And are listed once."""
    write_header(bench)
    names = {name: text for name, text in bench.subject.variables.items() if "INDUCTOR" not in name}
    subject = replace(bench.subject, variables=names)
    inductor, headers = inductor_place(subject, bench.facts), headers_place(subject, bench.facts)
    assert inductor
    assert headers
    assert headers.path == f"{inductor.path}/precompiled_headers"
    bench.variables["TORCHINDUCTOR_CACHE_DIR"] = inductor.path
    assert [path for path in bench.classes() if key("c", 900) in path] == [ENTRY]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give folders away")
def test_a_default_folder_of_another_user_is_told(bench: Bench) -> None:
    folder = write_header(bench).parents[1]
    os.chown(folder, 4321, 4321)
    (spot,) = [spot for survey in bench.survey() for spot in survey.weak_spots]
    assert spot.message.startswith(f"{folder} belongs to uid 4321")


@pytest.mark.parametrize(
    ("variables", "decided_by"),
    [
        ({"TMPDIR": "{there}"}, "TMPDIR"),
        ({"TMPDIR": "{there}/gone", "TEMP": "{there}"}, "TEMP"),
        ({"TMPDIR": "{there}/file", "TMP": "{there}"}, "TMP"),
        ({"TMPDIR": "", "TEMP": "{there}/gone"}, "default"),
    ],
)
def test_a_folder_for_temporary_files_that_is_not_there_is_passed_over(
    tmp_path: Path, variables: dict[str, str], decided_by: str
) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "file").touch()
    named = {name: text.format(there=tmp_path) for name, text in variables.items()}
    subject = replace(bench.subject, variables={"USER": "me", **named})
    place = inductor_place(subject, bench.facts)
    assert place
    assert place.decided_by == decided_by
    where = "/tmp" if decided_by == "default" else str(tmp_path)
    assert place.path == f"{where}/torchinductor_me"
