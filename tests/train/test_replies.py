from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.train.tiny_run import EOS
from tests.train.writing_target import writing_target
from train.replies import Reply, ReplyWriter, Request, Sampling, draw

if TYPE_CHECKING:
    from train.target import Target


@pytest.fixture(scope="module", name="target")
def _target() -> Target:
    return writing_target()


def requests(number: int) -> list[Request]:
    return [Request(key=i, prompt_ids=tuple(range(4, 6 + 3 * i % 7))) for i in range(number)]


def written(target: Target, asked: list[Request], **settings: Any) -> dict[Any, Reply]:
    arguments: dict[str, Any] = {
        "batch": 4,
        "max_new_tokens": 12,
        "sampling": Sampling(),
        "on_token": ignore,
    }
    writer = ReplyWriter(target, **(arguments | settings))
    return {one.request.key: one for replies in writer.run(deque(asked)) for one in replies}


def ignore(num_writing: int) -> None:
    """Show no progress."""
    assert num_writing >= 0


def alone(target: Target, request: Request, max_new_tokens: int) -> list[int]:
    """Greedy decoding without batch, cache or padding."""
    ids: list[int] = []
    while len(ids) < max_new_tokens:
        final = target.states(torch.tensor([[*request.prompt_ids, *ids]])).final_BTD[0, -1]
        ids.append(int(target.logits(final).argmax()))
        if ids[-1] == EOS:
            return ids[:-1]
    return ids


@pytest.mark.parametrize("batch", [1, 4, 30])
def test_replies_are_the_greedy_ones_of_each_prompt_alone(target: Target, batch: int) -> None:
    asked = requests(11)
    replies = written(target, asked, batch=batch)
    assert len(replies) == 11
    for request in asked:
        reply = replies[request.key]
        assert reply.ids == alone(target, request, 12)
        assert reply.ended is (len(reply.ids) < 12)


def test_sampled_replies_depend_on_seed_and_key_and_not_on_the_company(target: Target) -> None:
    asked = requests(9)
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=3)
    together = written(target, asked, batch=9, sampling=sampling)
    assert written(target, asked[::-1], batch=2, sampling=sampling) == together
    assert written(target, asked, sampling=Sampling(1.0, top_p=0.9, seed=4)) != together
    same_prompt = [Request(key=i, prompt_ids=(4, 5)) for i in range(9)]
    replies = written(target, same_prompt, sampling=sampling)
    assert len({tuple(reply.ids) for reply in replies.values()}) > 5


def test_some_replies_end_and_some_are_cut(target: Target) -> None:
    """What the two tests before rely on."""
    replies = written(target, requests(40), sampling=Sampling(temperature=1.0))
    assert {reply.ended for reply in replies.values()} == {True, False}
    assert len({len(reply.ids) for reply in replies.values()}) > 4


def test_more_can_be_asked_while_it_writes(target: Target) -> None:
    waiting = deque(requests(3))
    done = []
    writer = ReplyWriter(target, batch=2, max_new_tokens=4, sampling=Sampling(), on_token=ignore)
    for replies in writer.run(waiting):
        asked = [reply.request for reply in replies]
        done += [(one.key, one.part) for one in asked]
        waiting.extend(Request(one.key, (4,), part=1) for one in asked if one.part == 0)
    assert set(done) == {(key, part) for key in range(3) for part in range(2)}
    assert len(done) == 6


def test_settings_that_a_folder_came_with_are_not_used() -> None:
    asked = requests(3)
    plain = writing_target()
    wanted = written(plain, asked)
    penalised = writing_target()
    penalised.model.generation_config.repetition_penalty = 50.0
    penalised.model.generation_config.min_new_tokens = 12
    assert written(penalised, asked) == wanted


def test_a_batch_that_does_not_fit_is_halved(target: Target) -> None:
    asked = requests(7)
    wanted = written(target, asked)
    small = writing_target()
    generate = small.model.generate
    sizes = []

    def generate_at_most_two(input_ids: torch.Tensor, **arguments: Any) -> Any:
        sizes.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError
        return generate(input_ids=input_ids, **arguments)

    small.model.generate = generate_at_most_two
    assert written(small, asked) == wanted
    assert sizes[0] == 4
    assert max(sizes[1:]) == 2


@pytest.mark.parametrize(
    ("top_p", "wanted"),
    [
        pytest.param(1.0, [0.25, 0.125, 0.5, 0.125, 0.0], id="all"),
        pytest.param(0.75, [1 / 3, 0.0, 2 / 3, 0.0, 0.0], id="likeliest"),
        pytest.param(0.4, [0.0, 0.0, 1.0, 0.0, 0.0], id="one-token-holds-the-share"),
    ],
)
def test_draws_follow_the_distribution(top_p: float, wanted: list[float]) -> None:
    logits_BV = torch.tensor([0.25, 0.125, 0.5, 0.125, 0.0]).log().expand(1000, -1)
    uniform_B1 = (torch.arange(1000, dtype=torch.float64)[:, None] + 0.5) / 1000
    sampling = Sampling(temperature=1.0, top_p=top_p)
    counts = Counter(draw(logits_BV, uniform_B1=uniform_B1, sampling=sampling)[:, 0].tolist())
    assert [counts[token] / 1000 for token in range(5)] == pytest.approx(wanted, abs=0.002)


def test_temperature_sharpens() -> None:
    logits_BV = torch.tensor([0.5, 0.25, 0.25]).log().expand(1000, -1)
    uniform_B1 = (torch.arange(1000, dtype=torch.float64)[:, None] + 0.5) / 1000
    tokens = draw(logits_BV, uniform_B1=uniform_B1, sampling=Sampling(temperature=0.5))
    assert int((tokens == 0).sum()) == pytest.approx(1000 * 4 / 6, abs=2)
