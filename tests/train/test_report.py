from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.curves import Curve, bars, chart
from train.report import MAX_POINTS, page, read_records

EMPTY_TAGS = {"meta", "polyline", "circle", "rect", "line"}
SUMMARY: dict[str, Any] = {
    "name": "<b>run & co</b>",
    "state": "finished",
    "training": {"steps": 3, "num_steps": 3, "num_tokens": 9000, "tokens_per_second": 123.0},
    "held_out": {"before": {"loss": 7.5}, "after": {"loss": 4.25}},
    "decoding": {
        "lossless": True,
        "standard_errors_above_untrained": 3.0,
        "num_timed_prompts": 4,
        "speed_up": 1.25,
        "untrained": {"mean": 1.05},
        "trained": {
            "mean": 1.75,
            "standard_error": 0.05,
            "num_prompts": 12,
            "histogram": [5, 3, 2, 0],
        },
    },
    "machine": {
        "device": "cpu",
        "num_cpus": 2,
        "peak_memory_bytes": 10**9,
        "versions": {"torch": "2.13.0"},
    },
    "config": {"name": "</pre><script>alert(1)</script>"},
}


class Page(HTMLParser):
    """Collects elements, and fails where they are not closed as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def step(number: int, loss: float | None = 2.0) -> dict[str, Any]:
    return {
        "kind": "step",
        "step": number,
        "loss": loss,
        "accuracy": [0.5, 0.25, None],
        "estimated_acceptance_length": 1.5,
        "tokens_per_second": 100.0,
        "learning_rate": 1e-3,
    }


def test_report_stands_alone_and_is_escaped() -> None:
    text = page([step(1), step(2), step(3)], SUMMARY)
    found = Page(text)
    assert found.open == []
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"script", "link", "img", "iframe", "b"}
    names = {name for _, attributes in found.elements for name in attributes}
    assert not names & {"src", "href", "onload"}
    assert not re.search(r"https?://|url\(|@import", text)
    assert "<b>run & co</b>" in found.text
    assert SUMMARY["config"]["name"] in json.loads(found.text[found.text.rindex("{") :]).values()


def test_curves_show_the_metrics() -> None:
    measured = {"kind": "evaluation", "step": 3, "held_out_loss": 4.5, "acceptance_length": 1.7}
    found = Page(page([step(1), step(2, None), step(3), measured], SUMMARY))
    lines = [attributes["points"] for tag, attributes in found.elements if tag == "polyline"]
    counts = [len(str(points).split()) for points in lines]
    # Loss without the step that JSON could not hold; two slots, the estimate; what was decoded and
    # the held-out loss; speed, rate.
    assert counts == [2, 3, 3, 3, 1, 1, 3, 3]
    assert sum(tag == "rect" for tag, _ in found.elements) == 4
    for shown in ("4.250 nats", "1.050 -> 1.750 +- 0.050", "123", "9,000", "1.25 times"):
        assert shown in found.text


@pytest.mark.parametrize(
    ("trained", "speed_up", "words"),
    [
        pytest.param({"num_prompts": 1}, 2.0, "1.050 -> 1.750, 1 prompt", id="one-prompt"),
        pytest.param({"num_prompts": 0}, math.nan, "every answer ended at its", id="no-rounds"),
    ],
)
def test_what_cannot_be_said_is_left_out(
    trained: dict[str, Any], speed_up: float, words: str
) -> None:
    lone = {**SUMMARY["decoding"]["trained"], "mean": 1.75, "standard_error": math.nan, **trained}
    decoding = {**SUMMARY["decoding"], "trained": lone, "speed_up": speed_up}
    text = Page(page([step(1)], {**SUMMARY, "decoding": decoding})).text
    assert words in text
    assert "nan" not in text
    assert ("times as fast" in text) is (not math.isnan(speed_up))


@pytest.mark.parametrize("num_steps", [0, 1, MAX_POINTS, 5 * MAX_POINTS + 3])
def test_long_runs_are_thinned_out_to_their_last_step(num_steps: int) -> None:
    found = Page(page([step(number) for number in range(1, num_steps + 1)], SUMMARY))
    lines = [str(attributes["points"]) for tag, attributes in found.elements if tag == "polyline"]
    assert all(len(points.split()) <= 2 * MAX_POINTS for points in lines)
    assert bool(lines) == bool(num_steps)
    # Where all have one x the axis has no length; else the last step is at the right end.
    if num_steps > 1:
        assert lines[0].split()[-1].startswith("628.0,")


def test_run_that_was_stopped_has_a_report() -> None:
    stopped = {**SUMMARY, "state": "interrupted", "held_out": {"before": {"loss": 7.5}}}
    del stopped["decoding"]
    text = Page(page([step(1)], stopped)).text
    assert "interrupted" in text
    assert "Acceptance on held-out" not in text


def test_torn_lines_are_left_out() -> None:
    assert read_records([b'{"step": 1}', b"", b"[1]", b'{"step": 2', b"\xff"]) == [{"step": 1}]


numbers = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20), st.text(max_size=20))
def test_any_curve_is_a_drawing(points: list[tuple[float, float]], name: str) -> None:
    drawn = chart([Curve(name, sorted(points))], x_name=name)
    assert Page(drawn).open == []
    assert not re.search("nan|inf", re.sub(r">[^<]*<", "", drawn))


@given(st.lists(st.tuples(st.text(max_size=5), st.floats(0, 1e9)), max_size=20))
def test_any_bars_are_a_drawing(counts: list[tuple[str, float]]) -> None:
    found = Page(bars(counts, x_name="x"))
    assert found.open == []
    assert sum(tag == "rect" for tag, _ in found.elements) == len(counts)
