from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.tiny_run import RUN_FILE
from train.__main__ import main
from train.config import ConfigError, TrainConfig, changed, load_config, to_builtins
from train.fields import settings, table
from train.overrides import Override, dotted_fields, overlaid, parse_overrides

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="run_file")
def _run_file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "run.toml"
    path.parent.mkdir()
    path.write_text(RUN_FILE.format(mask=3, epochs=2), "utf-8")
    return path


def value_of(config: TrainConfig, key: str) -> Any:
    value: Any = to_builtins(config)
    for name in key.split("."):
        value = value[name]
    return value


@pytest.mark.parametrize(
    ("text", "key", "wanted"),
    [
        pytest.param("train.epochs=7", "train.epochs", 7, id="number"),
        pytest.param("train.peak_lr=1e-4", "train.peak_lr", 1e-4, id="fraction"),
        pytest.param("train.peak_lr=1", "train.peak_lr", 1.0, id="whole-for-fraction"),
        pytest.param("train.checkpoint_layers=true", "train.checkpoint_layers", True, id="bool"),
        pytest.param('train.device="cpu"', "train.device", "cpu", id="quoted"),
        pytest.param("train.device=auto", "train.device", "auto", id="bare"),
        pytest.param("name=a", "name", "a", id="top-level"),
        pytest.param("data.buckets=[64, 128]", "data.buckets", (64, 128), id="list"),
        pytest.param(" train.epochs = 7 # more", "train.epochs", 7, id="spaces-and-comment"),
        pytest.param("eval={num_prompts = 9}", "eval.num_prompts", 9, id="section"),
        pytest.param("train.gamma=2.5", "train.gamma", 2.5, id="unset-in-the-file"),
    ],
)
def test_a_setting_is_laid_over_the_run_file(
    run_file: Path, text: str, key: str, wanted: object
) -> None:
    assert value_of(load_config(run_file, settings=[text]), key) == wanted


def test_the_rest_stays_and_the_last_of_two_counts(run_file: Path) -> None:
    plain = to_builtins(load_config(run_file))
    config = load_config(run_file, settings=["train.epochs=5", "train.epochs=6"])
    plain["train"]["epochs"] = 6
    assert to_builtins(config) == plain


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("train.epochs", "--set train.epochs: wanted KEY=VALUE", id="no-value"),
        pytest.param("=3", "--set =3: wanted KEY=VALUE", id="no-key"),
        pytest.param("train..epochs=3", "--set train..epochs=3: wanted KEY=VALUE", id="dots"),
        pytest.param(
            "train.epochs=", "--set train.epochs: found '', wanted a value as in TOML", id="empty"
        ),
        pytest.param(
            "train.epochs=1\nname='x'",
            "--set train.epochs: found \"1\\nname='x'\", wanted one value",
            id="smuggled",
        ),
        pytest.param(
            "train.epochs=0",
            "--set train.epochs: found 0, wanted a whole number at least 1",
            id="too-small",
        ),
        pytest.param(
            "train.epochs=three",
            "--set train.epochs: found 'three', wanted a whole number at least 1",
            id="words",
        ),
        pytest.param("train.epochs=true", "--set train.epochs: found True", id="bool"),
        pytest.param(
            "data.buckets=[64", "--set data.buckets: found '[64', wanted a value", id="broken"
        ),
        pytest.param(
            "train.epoch=3", "--set train.epoch: unknown key; did you mean train.epochs?", id="typo"
        ),
        pytest.param(
            "epochs=3", "--set epochs: unknown key; did you mean train.epochs?", id="no-section"
        ),
        pytest.param(
            "num_anchors=3",
            "--set num_anchors: unknown key; did you mean ",
            id="two-sections",
        ),
        pytest.param(
            "quux.frob=3", "--set quux.frob: unknown key; `train fields` lists them all", id="none"
        ),
        pytest.param(
            "train.epochs.more=3", "--set train.epochs.more: unknown key; did you", id="below"
        ),
        pytest.param(
            "data.buckets=[32]",
            "--set data.buckets: the largest is 32, wanted at least data.max_length (64)",
            id="contradiction",
        ),
        pytest.param("eval={prompts = 9}", "--set eval.prompts: unknown key", id="section"),
        pytest.param("train=3", "--set train: found 3, wanted a table", id="no-table"),
    ],
)
def test_a_wrong_setting_names_set_and_the_key(run_file: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(run_file, settings=[text])
    assert caught.value.problems[0].startswith(problem), caught.value.problems


def test_problems_name_where_they_are(run_file: Path) -> None:
    text = run_file.read_text().replace("micro_batch = 2", "micro_batch = 0")
    run_file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(run_file, settings=["train.seed=-1"])
    assert caught.value.problems == (
        f"{run_file}: train.micro_batch: found 0, wanted a whole number at least 1",
        "--set train.seed: found -1, wanted a whole number at least 0 at most 4294967295",
    )
    assert load_config(run_file, settings=["train.micro_batch=1"]).train.micro_batch == 1


def test_a_section_of_another_type_is_the_run_files(run_file: Path) -> None:
    run_file.write_text("train = 3\n" + run_file.read_text().replace("[train]", "[other]"))
    with pytest.raises(ConfigError, match=r"run\.toml: train: found 3, wanted a table"):
        load_config(run_file, settings=["train.seed=1"])


def test_paths_start_where_they_are_written(
    run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model-here").mkdir()
    config = load_config(run_file, settings=["data.train=here.jsonl", "target.path=model-here"])
    assert config.data.train == str(tmp_path / "here.jsonl")
    assert config.data.held_out == str(run_file.parent / "held-out.jsonl")
    assert config.target.path == str(tmp_path / "model-here")
    config = load_config(run_file, settings=["data.train=hub:a/b:test", "target.path=org/model"])
    assert (config.data.train, config.target.path) == ("hub:a/b:test", "org/model")


def test_a_resolved_config_is_changed_in_the_same_way(run_file: Path) -> None:
    config = load_config(run_file)
    same = changed(config, path=run_file.parent / "config.json", settings=[])
    assert same == config
    longer = changed(config, path=run_file, settings=["train.epochs=9", "data.max_rows=3"])
    assert (longer.train.epochs, longer.data.max_rows) == (9, 3)
    with pytest.raises(ConfigError, match=r"--set train\.epochs: found 0"):
        changed(config, path=run_file, settings=["train.epochs=0"])


@given(st.text(max_size=30))
def test_any_text_is_a_setting_or_an_error(text: str) -> None:
    try:
        (override,) = parse_overrides([text], TrainConfig)
    except ConfigError as error:
        assert all(problem.startswith("--set ") for problem in error.problems)
    else:
        assert override.key in dict(dotted_fields(TrainConfig))


words = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=8)


@given(
    st.sampled_from([key for key, _ in dotted_fields(TrainConfig)]),
    st.one_of(st.integers(), st.booleans(), words, st.lists(st.integers())),
)
def test_toml_values_are_what_toml_says(key: str, value: object) -> None:
    (override,) = parse_overrides([f"{key}={json.dumps(value)}"], TrainConfig)
    assert override == Override(key, value)
    raw: dict[str, Any] = {"name": "x", "train": {"epochs": 1}}
    assert overlaid(raw, [])["train"] == {"epochs": 1}
    overlaid(raw, [override])
    assert raw == {"name": "x", "train": {"epochs": 1}}


def test_every_setting_is_documented_with_its_default() -> None:
    found = {one.key: one for one in settings()}
    sections = {key for key, _ in dotted_fields(TrainConfig)} - found.keys()
    assert sections >= {"target", "draft", "data", "train", "eval", "log"}
    undocumented = [key for key, one in found.items() if not one.meaning.endswith(".")]
    assert undocumented == []
    assert found["train.epochs"].default == "6"
    assert found["data.buckets"].default == "[512, 1024, 2048, 3072]"
    assert found["target.path"].is_required
    assert all(f"\n{key}: " in f"\n{table()}" for key in found)


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fields"]) == 0
    assert capsys.readouterr().out == table()


def test_set_reaches_the_run(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train.jsonl", "held-out.jsonl"):
        (run_file.parent / name).write_text("{}")
    (run_file.parent / "model").mkdir()
    assert main(["--config", str(run_file), "--set", "train.epochs=0"]) == 2
    assert capsys.readouterr().err == (
        "error: --set train.epochs: found 0, wanted a whole number at least 1\n"
    )
