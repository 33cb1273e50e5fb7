from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

import pytest

from envdoctor.caches.access import weak_steps
from envdoctor.facts import PathStep
from envdoctor.formats.cache_lines import is_in_order
from envdoctor.probes.cache_access import steps_to
from tests.caches.samples import warmed

if TYPE_CHECKING:
    from pathlib import Path

ME, OTHER = 1000, 2000
FOLDER, LINK = stat.S_IFDIR, stat.S_IFLNK


def step(path: str, uid: int, mode: int, target: str = "") -> PathStep:
    return PathStep(path=path, uid=uid, mode=mode, target=target)


@pytest.mark.parametrize(
    ("steps", "culprits"),
    [
        pytest.param([step("/c", ME, FOLDER | 0o700)], [], id="mine"),
        pytest.param([step("/c", ME, FOLDER | 0o777)], ["/c"], id="open"),
        pytest.param([step("/c", ME, FOLDER | 0o1777)], [], id="sticky"),
        pytest.param([step("/c", OTHER, FOLDER | 0o755)], ["/c"], id="of-another"),
        pytest.param(
            [step("/a", ME, FOLDER | 0o777), step("/a/c", ME, FOLDER | 0o700)],
            ["/a"],
            id="below-an-open-one",
        ),
        pytest.param(
            [step("/l", ME, LINK | 0o777, "/o"), step("/o", 0, FOLDER | 0o777)],
            ["/o"],
            id="a-link-to-an-open-one",
        ),
        pytest.param([step("/l", OTHER, LINK | 0o777, "/c")], ["/l"], id="a-link-of-another"),
        pytest.param([step("/l", 0, LINK | 0o777, "/c")], [], id="a-link-of-the-system"),
    ],
)
def test_weak_steps(steps: list[PathStep], culprits: list[str]) -> None:
    assert [spot.path for spot in weak_steps(steps, uid=ME)] == culprits


def test_steps_are_read_through_links(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "cache").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    path = tmp_path / "link/cache"
    found = [one.path for one in steps_to(str(path))]
    assert found[0] == "/"
    assert found[-3:] == [str(tmp_path / "link"), str(real), str(real / "cache")]
    assert [one.path for one in steps_to(f"{path}/not/there")] == found


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert len(steps_to(str(tmp_path / "a"))) < 100


def test_an_open_cache_is_told_with_its_remedy(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    assert [spot for survey in bench.survey() for spot in survey.weak_spots] == []
    bench.inductor.chmod(0o777)
    inner = next(bench.inductor.glob("??/*.so"))
    inner.chmod(0o666)
    spots = [spot for survey in bench.survey() for spot in survey.weak_spots]
    assert [spot.path for spot in spots] == [str(bench.inductor), str(inner)]
    assert [spot.remedy for spot in spots] == [
        f"chmod o-w {bench.inductor}",
        f"chmod o-w {inner}",
    ]


def test_only_what_is_open_is_named_in_the_remedy(tmp_path: Path) -> None:
    """The variable may name a folder that holds other things: nothing is changed recursively."""
    bench = warmed(tmp_path)
    for number in range(30):
        path = bench.inductor / f"notes {number:02}"
        path.touch()
        path.chmod(0o666)
    (spot,) = [spot for survey in bench.survey() for spot in survey.weak_spots]
    assert "27 more" in spot.message
    assert spot.remedy.startswith(f"chmod o-w '{bench.inductor}/notes 00' ")
    assert "-R" not in spot.remedy.split()


@pytest.mark.parametrize("name", ["fxgraph", "24"])
def test_a_link_in_a_cache_is_judged_by_where_it_leads(tmp_path: Path, name: str) -> None:
    """Torch follows it; a listing does not, so what lies there is not vouched for."""
    bench = warmed(tmp_path)
    shutil.rmtree(bench.inductor / name, ignore_errors=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (bench.inductor / name).symlink_to(outside)
    for mode, culprits in ((0o700, []), (0o777, [str(outside)])):
        outside.chmod(mode)
        survey = bench.survey()[0]
        assert [spot.path for spot in survey.weak_spots] == culprits
        assert survey.unread == (f"what lies in {outside}, where a link in the cache leads",)
        assert not is_in_order(survey)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give folders away")
def test_a_cache_of_another_user_is_told(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    os.chown(bench.triton, 4321, 4321)
    (spot,) = [spot for survey in bench.survey() for spot in survey.weak_spots]
    assert spot.message.startswith(f"{bench.triton} belongs to uid 4321")
