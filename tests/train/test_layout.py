from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.train.tiny_run import write_run
from train.config import check_layout, load_config
from train.layout import LayoutConfig, contradictions, refusal, release
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

THREADS = LayoutConfig(mode="threads", targets=5, drafters=3)


@pytest.mark.parametrize(
    ("layout", "torch_version", "words"),
    [
        pytest.param(THREADS, "2.11.0+cu130", "torch 2.11.0+cu130 keeps one flag", id="2.11"),
        pytest.param(THREADS, "2.13.0", "refused: torch 2.13.0 keeps one flag", id="2.13"),
        pytest.param(THREADS, "2.14.0a0+git1", "threads, which is not supported", id="2.14-dev"),
        pytest.param(THREADS, "3.0", "threads, which is not supported", id="3.0"),
        pytest.param(THREADS, "", "refused: torch before 2.14 keeps one flag", id="unknown"),
        pytest.param(THREADS, "nightly", "refused: torch nightly keeps one flag", id="no-number"),
        pytest.param(
            LayoutConfig(mode="processes", targets=5, drafters=3),
            "2.15.0",
            "processes, which is not there yet: it needs the many-GPU layouts",
            id="processes",
        ),
    ],
)
def test_layouts_are_refused_with_their_reason(
    layout: LayoutConfig, torch_version: str, words: str
) -> None:
    found = refusal(layout, torch_version)
    assert found is not None
    assert words in found
    assert "\n" not in found
    with pytest.raises(ConfigError, match="wanted inline"):
        check_layout(layout, torch_version=torch_version)


def test_one_process_runs_with_every_torch() -> None:
    check_layout(LayoutConfig(), torch_version="2.11.0")


@pytest.mark.parametrize(
    ("layout", "problems"),
    [
        pytest.param(LayoutConfig(), [], id="default"),
        pytest.param(THREADS, [], id="numbers-belong-to-the-mode"),
        pytest.param(
            LayoutConfig(targets=5, drafters=3),
            [
                "layout.targets: found 5, wanted 1 with layout.mode inline",
                "layout.drafters: found 3, wanted 1 with layout.mode inline",
            ],
            id="inline-is-one-process",
        ),
    ],
)
def test_numbers_must_fit_the_mode(layout: LayoutConfig, problems: list[str]) -> None:
    assert contradictions(layout) == problems


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.11.0+cu130", (2, 11)), ("2.9", (2, 9)), ("2.14.1+rocm7.2", (2, 14)), ("", ())],
)
def test_release_leaves_the_build_out(version: str, expected: tuple[int, ...]) -> None:
    assert release(version) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            '[layout]\nmode = "thread"\n',
            "layout.mode: found 'thread', wanted one of inline, processes, threads",
            id="mode",
        ),
        pytest.param(
            "[layout]\ndrafter = 3\n",
            "layout.drafter: unknown key; did you mean layout.drafters?",
            id="key",
        ),
        pytest.param(
            "[layout]\ntargets = 0\n",
            "layout.targets: found 0, wanted a whole number at least 1",
            id="none",
        ),
        pytest.param(
            "[layout]\ndrafters = 2\n",
            "layout.drafters: found 2, wanted 1 with layout.mode inline",
            id="contradiction",
        ),
    ],
)
def test_table_is_strict(tmp_path: Path, text: str, problem: str) -> None:
    run_file = write_run(tmp_path)
    run_file.write_text(run_file.read_text() + text)
    with pytest.raises(ConfigError) as caught:
        load_config(run_file)
    assert str(caught.value) == f"{run_file}: {problem}"


def test_fused_attention_is_not_asked_of_a_cpu(tmp_path: Path) -> None:
    run_file = write_run(tmp_path)
    run_file.write_text(run_file.read_text().replace("[train]", '[train]\nattention = "flex"'))
    with pytest.raises(ConfigError, match=r"train\.attention: found flex, which cannot train"):
        load_config(run_file)
