from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from envdoctor.caches.vouch import forget_lost, stamp_all
from envdoctor.caches.warm import is_warm, needs_of
from envdoctor.facts import NvidiaFact
from envdoctor.train_request import TrainRequest
from tests.caches.samples import Bench, graph_pickle, key, warmed, write_graph
from tests.environments import elf
from tests.train.tiny_run import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = ("tiny", "digest")
NUM_ENTRIES = 17


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = warmed(tmp_path)
    stamp_all(
        found.survey(deep=True), found.around().fingerprint, home=found.home, by="warm",
        runs=dict([RUN]),
    )  # fmt: skip
    return found


def warm(bench: Bench, run: tuple[str, str] = RUN) -> bool:
    return is_warm(bench.survey(), bench.around().fingerprint, run=run)


def test_a_cache_that_was_warmed_is_warm_and_so_is_one_that_has_more(bench: Bench) -> None:
    assert warm(bench)
    write_graph(bench.inductor, 70, graph_pickle(70, mark=bench.around().mark))
    assert warm(bench)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda bench: shutil.rmtree(bench.inductor), id="wiped"),
        pytest.param(lambda bench: next(bench.inductor.glob("??/*.so")).unlink(), id="one-gone"),
        pytest.param(
            lambda bench: next(bench.inductor.glob("??/*.so")).write_bytes(b""), id="one-damaged"
        ),
        pytest.param(
            lambda bench: setattr(bench, "nvidia", NvidiaFact(num_devices=0)), id="another-machine"
        ),
        pytest.param(
            lambda bench: bench.variables.update(TORCHINDUCTOR_MAX_AUTOTUNE="1"), id="a-variable"
        ),
    ],
)
def test_it_is_warm_no_more(bench: Bench, change: Callable[[Bench], object]) -> None:
    change(bench)
    assert not warm(bench)


def test_what_was_damaged_stays_so_however_often_it_is_stamped(bench: Bench) -> None:
    """Or the second stamp would vouch for what the first one found wrong."""
    library = next(bench.inductor.glob("??/*.so"))
    wrapper = next(bench.inductor.glob("??/*.py"))
    content = bytearray(library.read_bytes())
    content[-1] ^= 1
    library.write_bytes(content)
    wrapper.rename(wrapper.with_name(f"{key('c', 800)}.py"))
    for _ in range(3):
        assert bench.counts(deep=True) == {"valid": NUM_ENTRIES - 2, "corrupt": 2}
        assert bench.stamp() == NUM_ENTRIES - 2
        assert not warm(bench)
    bench.variables["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
    for kind in ("stale", "valid"):
        assert bench.counts(deep=True) == {kind: NUM_ENTRIES - 2, "corrupt": 2}
        assert bench.stamp() == NUM_ENTRIES - 2


def test_what_is_gone_and_compiled_anew_may_have_other_bytes(bench: Bench) -> None:
    library = next(bench.inductor.glob("??/*.so"))
    library.unlink()
    forget_lost(bench.survey(), home=bench.home)
    assert not warm(bench)
    library.write_bytes(elf("another.so"))
    assert not warm(bench)
    bench.stamp()
    assert bench.counts(deep=True) == {"valid": NUM_ENTRIES}


def test_it_is_not_warm_for_another_run(bench: Bench) -> None:
    assert not warm(bench, ("other", "digest"))
    assert not warm(bench, ("tiny", "other"))


def test_warming_for_a_second_run_keeps_the_first(bench: Bench) -> None:
    stamp_all(
        bench.survey(deep=True), bench.around().fingerprint, home=bench.home, by="warm",
        runs={"other": "digest"},
    )  # fmt: skip
    assert warm(bench)
    assert warm(bench, ("other", "digest"))


def test_what_a_run_needs_follows_from_its_file_but_not_from_its_log(tmp_path: Path) -> None:
    text = RUN_FILE.format(mask=3, epochs=2)

    def needs(name: str, changed: str) -> tuple[str, str]:
        path = tmp_path / name
        path.write_text(changed)
        return needs_of(TrainRequest(config=path))

    first = needs("a.toml", text)
    assert first[0] == "tiny"
    assert needs("b.toml", text.replace("every_steps = 1", "every_steps = 5")) == first
    changed = TrainRequest(config=tmp_path / "a.toml", changes=("train.num_anchors=5",))
    assert needs_of(changed)[1] != first[1]
    assert needs("c.toml", text.replace("[32, 64]", "[48, 64]"))[1] != first[1]
