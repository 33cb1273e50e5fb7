"""Caches that torch wrote here, in every state; a minute and more, most of it compiling."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envdoctor.caches.survey import Manner, survey_all
from envdoctor.probes.build_keys import entry_prefix
from envdoctor.probes.cache_files import list_files
from envdoctor.probes.cache_places import cache_places
from envdoctor.probes.subject import Subject
from tests.caches.real import compile_into
from tests.caches.samples import Bench, damage_at_random, files_of, write_triton

if TYPE_CHECKING:
    from envdoctor.caches.judge import Surroundings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++ on a CPU"),
]
DAMAGES = 1000


class Here(Bench):
    """The environment that runs the tests, with caches of its own."""

    @property
    def subject(self) -> Subject:
        return Subject(prefix=Path(sys.prefix), variables=super().subject.variables)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that torch has just filled."""
    cache = tmp_path_factory.mktemp("compiled") / "cache"
    missed, had = compile_into(cache)
    assert missed >= 2
    assert had == 0
    return cache


def here(folder: Path, compiled: Path) -> Here:
    bench = Here(folder)
    shutil.copytree(compiled, bench.inductor)
    write_triton(bench.triton, 90)
    return bench


def test_the_mark_in_its_pickles_is_the_one_computed(tmp_path: Path, compiled: Path) -> None:
    import torch  # noqa: PLC0415  seconds
    from torch._inductor.codecache import torch_key  # noqa: PLC0415

    bench = here(tmp_path, compiled)
    around = bench.around(deep=True)
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert around.fingerprint.torch == torch.__version__
    assert around.fingerprint.torch_key == torch_key().hex()
    assert around.mark == entry_prefix(torch_key(), python=python)
    marks = {said.torch for survey in bench.survey(deep=True) for reading in
             survey.readings.values() for said in reading.sayings if said.torch}  # fmt: skip
    assert marks == {around.mark}


def test_it_is_unknown_and_once_stamped_valid(tmp_path: Path, compiled: Path) -> None:
    bench = here(tmp_path, compiled)
    assert bench.counts(deep=True).keys() == {"unknown"}
    number = bench.stamp()
    assert bench.counts() == bench.counts(deep=True) == {"valid": number}
    shutil.copytree(bench.inductor, tmp_path / "user/copy")
    bench.variables["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "user/copy")
    assert bench.counts(deep=True) == {"valid": 1, "unknown": number - 1}


def test_a_thousand_damages(tmp_path: Path, compiled: Path) -> None:
    """None leaves the entry valid, and all others stay so."""
    bench = here(tmp_path, compiled)
    number = bench.stamp()
    around, seen = bench.around(), Counter[str]()
    chance = random.Random(5)  # noqa: S311  the same damage in every run
    files = [path for path in files_of(bench.inductor, bench.triton) if path.stat().st_size]
    for _ in range(DAMAGES):
        path = chance.choice(files)
        content, status = path.read_bytes(), path.stat()
        way = damage_at_random(path, chance)
        found = counts(bench, around)
        assert found.pop("valid") == number - 1, (way, path, found)
        assert found.keys() <= {"corrupt", "foreign", "unknown"}, (way, path, found)
        seen[f"{way}: {' '.join(sorted(found)) or 'missing'}"] += 1
        for left in path.parent.glob(f"*{path.suffix}"):
            if left not in files:
                left.unlink()
        path.write_bytes(content)
        os.chown(path, status.st_uid, status.st_gid)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert counts(bench, around) == {"valid": number}
    assert {name for name in seen if "unknown" in name} <= {"rename: corrupt unknown"}, seen
    assert {name.partition(":")[0] for name in seen} >= {"flip", "cut", "extend", "rename"}


def counts(bench: Bench, around: Surroundings) -> dict[str, int]:
    """Classes of a deep look that does not compute the keys of torch anew."""
    places = cache_places(bench.subject, bench.facts)
    surveys = survey_all(places, around, home=bench.home, manner=Manner(deep=True))
    return Counter(one.kind for survey in surveys for one in survey.judgements)


def test_moved_elsewhere_it_is_hit(tmp_path: Path, compiled: Path) -> None:
    """Exported, wiped and imported into another folder, torch finds all of it."""
    bench = here(tmp_path, compiled)
    variables = {**os.environ, "ENVDOCTOR_HOME": str(bench.home)}
    command = [sys.executable, "-m", "envdoctor", "cache"]
    packed = str(tmp_path / "packed.cache")
    for words, folder in ((["export", packed], bench.inductor), (["import", packed], "elsewhere")):
        place = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / folder)}
        argv = [*command, *words, "--prefix", sys.prefix]
        done = subprocess.run(argv, env={**variables, **place}, check=False, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert list_files(str(tmp_path / "elsewhere")).files
    missed, had = compile_into(tmp_path / "elsewhere")
    assert (missed, had) == (0, 2)
