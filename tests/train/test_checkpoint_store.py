"""What a run's checkpoints consist of, which are kept, and what damage is noticed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.train.test_checkpoint import CONFIG
from train.checkpoint import CheckpointError, load_checkpoint, serving_config, serving_weights
from train.checkpoint_store import CheckpointStore, damage
from train.drafter import Drafter
from train.resume import newest_whole
from train.snapshot import Snapshot, copied

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module", name="weights")
def _weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return serving_weights(Drafter(CONFIG).state_dict())


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=2)


def snapshot(step: int, weights: dict[str, torch.Tensor], **state: Any) -> Snapshot:
    return Snapshot(
        step=step,
        weights=weights,
        serving=serving_config(CONFIG, bos_token_id=1, eos_token_id=2),
        training={"drafter": {}, "optimizer": {"step": torch.tensor(float(step))}},
        random={"torch": torch.get_rng_state()},
        state={"step": step, **state},
    )


def save(store: CheckpointStore, weights: Any, *steps: int, best: int | None = None) -> None:
    for step in steps:
        store.write(snapshot(step, weights), is_best=step == best)


def test_checkpoint_is_servable_and_names_every_file(store: CheckpointStore, weights: Any) -> None:
    save(store, weights, 7)
    path = store.path(7)
    assert path.name == "step-00000007"
    assert sorted(one.name for one in path.iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "model.safetensors",
        "optimizer.pt",
        "rng-rank0.pt",
        "state.json",
    ]
    assert load_checkpoint(path).config == CONFIG
    summed = [line.split("  ")[1] for line in (path / "SHA256SUMS").read_text().splitlines()]
    assert sorted([*summed, "SHA256SUMS"]) == sorted(one.name for one in path.iterdir())
    assert json.loads((path / "state.json").read_text())["step"] == 7


def test_pointers_and_link_name_the_latest_and_the_best(
    store: CheckpointStore, weights: Any
) -> None:
    assert store.pointed("latest") is None
    save(store, weights, 1, 2, 3, best=2)
    assert (store.folder / "latest").read_text() == "step-00000003\n"
    assert store.pointed("latest") == store.path(3)
    assert store.pointed("best") == store.path(2)
    link = store.folder.parent / "checkpoint"
    assert link.resolve() == store.path(3).resolve()
    moved = store.folder.parent.rename(store.folder.parent.with_name("moved"))
    assert load_checkpoint(moved / "checkpoint").config == CONFIG


def test_newest_and_best_are_kept(store: CheckpointStore, weights: Any) -> None:
    save(store, weights, 1, 2, 3, 4, 5, best=2)
    assert store.steps() == [2, 4, 5]
    assert {one.name for one in store.folder.iterdir()} == {
        *("step-00000002", "step-00000004", "step-00000005"),
        *("latest", "best"),
    }


def test_pointer_to_elsewhere_is_none(store: CheckpointStore, weights: Any) -> None:
    save(store, weights, 1)
    for text in ("../..", "step-00000009", "", "/"):
        (store.folder / "latest").write_text(text)
        assert store.pointed("latest") is None


def test_what_is_not_a_checkpoint_is_not_counted(store: CheckpointStore, weights: Any) -> None:
    save(store, weights, 3)
    for name in ("step-", "step-x", "broken-step-00000009", ".step-00000009.partial"):
        (store.folder / name).mkdir()
    assert store.steps() == [3]
    store.tidy()
    assert not (store.folder / ".step-00000009.partial").exists()


def test_leftover_of_a_killed_save_is_replaced(store: CheckpointStore, weights: Any) -> None:
    (store.folder / ".step-00000003.partial").mkdir(parents=True)
    (store.folder / ".step-00000003.partial" / "half").write_text("x")
    save(store, weights, 3)
    assert damage(store.path(3)) is None
    assert not (store.path(3) / "half").exists()


def test_weights_with_nan_leave_the_earlier_checkpoint(
    store: CheckpointStore, weights: Any
) -> None:
    save(store, weights, 1)
    broken = {**weights, "norm.weight": weights["norm.weight"] * torch.nan}
    with pytest.raises(CheckpointError, match=r"norm\.weight is not finite"):
        save(store, broken, 2)
    assert store.steps() == [1]
    assert [one.name for one in store.folder.glob(".*")] == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def first_line(path: Path) -> str:
    return (path / "SHA256SUMS").read_text().splitlines()[0] + "\n"


DAMAGES: list[Any] = [
    pytest.param(lambda path: flip(path / "model.safetensors"), id="one-bit-of-a-weight"),
    pytest.param(lambda path: flip(path / "optimizer.pt"), id="one-bit-of-the-optimizer"),
    pytest.param(lambda path: flip(path / "rng-rank0.pt"), id="one-bit-of-the-random-state"),
    pytest.param(lambda path: (path / "state.json").write_text("{}"), id="other-state"),
    pytest.param(lambda path: (path / "optimizer.pt").unlink(), id="missing-file"),
    pytest.param(lambda path: (path / "optimizer.pt").write_bytes(b""), id="empty-file"),
    pytest.param(lambda path: (path / "SHA256SUMS").unlink(), id="missing-sums"),
    pytest.param(lambda path: (path / "SHA256SUMS").write_text(""), id="empty-sums"),
    pytest.param(lambda path: (path / "SHA256SUMS").write_bytes(b"\xff\x00"), id="binary-sums"),
    pytest.param(lambda path: (path / "SHA256SUMS").write_text("x\n"), id="senseless-sums"),
    pytest.param(lambda path: (path / "SHA256SUMS").write_text(first_line(path)), id="cut-sums"),
    pytest.param(lambda path: [one.unlink() for one in path.iterdir()], id="empty-folder"),
]


@pytest.mark.parametrize("harm", DAMAGES)
def test_broken_newest_checkpoint_gives_way_to_the_one_before(
    store: CheckpointStore, weights: Any, harm: Callable[[Path], object]
) -> None:
    save(store, weights, 4, 8)
    assert newest_whole(store, say=pytest.fail) == store.path(8)
    harm(store.path(8))
    said: list[str] = []
    assert newest_whole(store, say=said.append) == store.path(4)
    assert [line.split(":")[0] for line in said] == ["warning"]
    assert "step-00000008 is broken" in said[0]
    assert (store.folder / "broken-step-00000008").is_dir()
    save(store, weights, 8)
    assert newest_whole(store, say=pytest.fail) == store.path(8)


def test_nothing_whole_is_none(store: CheckpointStore, weights: Any) -> None:
    assert newest_whole(store, say=pytest.fail) is None
    save(store, weights, 1)
    flip(store.path(1) / "model.safetensors")
    said: list[str] = []
    assert newest_whole(store, say=said.append) is None
    assert said[1:] == ["warning: no checkpoint is whole: the run begins anew"]


def test_copy_does_not_follow_its_source() -> None:
    tensor = torch.zeros(2)
    tree = {"a": [tensor, (1, "x")], "b": {3: tensor}}
    copy = copied(tree)
    tensor.fill_(1.0)
    assert copy["a"][0].tolist() == copy["b"][3].tolist() == [0.0, 0.0]
    assert copy["a"][1] == (1, "x")
