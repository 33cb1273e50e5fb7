from __future__ import annotations

import os
from typing import TYPE_CHECKING

from envdoctor.caches.prune import chosen, prune
from tests.caches.samples import files_of, graph_pickle, key, triton_key, warmed, write_graph

if TYPE_CHECKING:
    from pathlib import Path


def test_prune_removes_what_was_named_and_nothing_else(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    foreign = write_graph(bench.inductor, 5, graph_pickle(5, mark="b" * 51))
    corrupt = write_graph(bench.inductor, 6, graph_pickle(6, mark="b" * 51))
    corrupt.write_bytes(b"")
    before = files_of(bench.inductor, bench.triton)
    items = chosen(bench.survey(), {"corrupt"})
    done = prune(items, home=bench.home)
    assert done.removed == (str(corrupt),)
    assert not done.left
    assert not corrupt.parent.exists()
    assert files_of(bench.inductor, bench.triton) == [path for path in before if path != corrupt]
    assert foreign.exists()
    assert bench.inductor.is_dir()


def test_prune_takes_all_files_of_an_entry_and_what_was_stamped_is_not_missed(
    tmp_path: Path,
) -> None:
    bench = warmed(tmp_path)
    entry = bench.triton / triton_key(90)
    (entry / "scale.cubin").write_bytes(b"")
    done = prune(chosen(bench.survey(), {"corrupt"}), home=bench.home)
    assert len(done.removed) == 8
    assert not entry.exists()
    assert [path for survey in bench.survey() for path in survey.missing] == []


def test_a_file_that_changed_since_it_was_shown_stays(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    path = next(bench.inductor.glob("fxgraph/*/*/*"))
    path.write_bytes(b"")
    items = chosen(bench.survey(), {"corrupt"})
    path.write_bytes(b"whole again")
    done = prune(items, home=bench.home)
    assert done.removed == ()
    assert done.left == ((str(path), "it has changed since it was listed"),)
    assert path.read_bytes() == b"whole again"


def test_prune_follows_no_link(tmp_path: Path) -> None:
    """A folder that becomes a link between the look and the removal leads nowhere."""
    bench = warmed(tmp_path)
    path = next(bench.inductor.glob("fxgraph/*/*/*"))
    path.write_bytes(b"")
    items = chosen(bench.survey(), {"corrupt"})
    outside = tmp_path / "outside"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)
    done = prune(items, home=bench.home)
    assert done.removed == ()
    assert (outside / path.name).exists()


def test_a_link_in_a_cache_is_removed_and_not_what_it_points_to(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    link = bench.inductor / f"zz/{key('c', 7)}.py"
    link.parent.mkdir()
    link.symlink_to(precious)
    done = prune(chosen(bench.survey(), {"corrupt"}), home=bench.home)
    assert done.removed == (str(link),)
    assert precious.read_text() == "mine"
    assert not os.path.lexists(link)
