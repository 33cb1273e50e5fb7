from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.config import TrainConfig, check_inputs, is_local_path, load_config, to_builtins
from train.settings import ConfigError, describe, problems_of

MINIMAL: dict[str, Any] = {
    "name": "run",
    "target": {"path": "model"},
    "draft": {"mask_token_id": 3},
    "data": {"train": "a.jsonl", "held_out": "b.jsonl"},
}
RUNS = Path(__file__).parents[2] / "train" / "runs"


def with_value(key: str, value: object) -> dict[str, Any]:
    section, _, name = key.partition(".")
    if not name:
        return {**MINIMAL, section: value}
    return {**MINIMAL, section: {**MINIMAL.get(section, {}), name: value}}


def toml_of(raw: dict[str, Any]) -> str:
    """Write sections of scalars and lists; JSON spells those as TOML does, infinity apart."""
    lines = []
    for key, value in sorted(raw.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(value, dict):
            lines.append(f"[{key}]")
            lines += [f"{name} = {json.dumps(item)}" for name, item in value.items()]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines).replace("Infinity", "inf")


def test_minimal_file_is_valid() -> None:
    assert problems_of(MINIMAL, TrainConfig) == []


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        pytest.param("train.epochs", "six", "a whole number at least 1", id="text-for-number"),
        pytest.param("train.epochs", 0, "a whole number at least 1", id="too-small"),
        pytest.param("train.epochs", 2.5, "a whole number at least 1", id="fraction"),
        pytest.param("train.peak_lr", 0.0, "a number above 0", id="not-above"),
        pytest.param("train.betas", [0.9], "a list of 2", id="short-list"),
        pytest.param("train.device", "gpu", "one of auto, cpu, cuda", id="choice"),
        pytest.param("train.checkpoint_layers", 1, "true or false", id="number-for-switch"),
        pytest.param("draft.block_size", 1, "at least 2 at most 128", id="range"),
        pytest.param("data.buckets", 64, "a list", id="number-for-list"),
        pytest.param("data.train", "", "text that is not empty", id="empty-text"),
        pytest.param("name", "a/b", "letters", id="name-with-slash"),
        pytest.param("target", 3, "a table with path", id="number-for-table"),
    ],
)
def test_bad_value_names_key_found_and_wanted(key: str, value: object, wanted: str) -> None:
    (problem,) = problems_of(with_value(key, value), TrainConfig)
    assert problem.startswith(f"{key}: found {value!r}, wanted ")
    assert wanted in problem


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("train.epoch", "train.epochs"),
        ("draft.blocksize", "draft.block_size"),
        ("trian", "train"),
    ],
)
def test_mistyped_key_names_the_nearest(key: str, nearest: str) -> None:
    (problem,) = problems_of(with_value(key, 1), TrainConfig)
    assert problem == f"{key}: unknown key; did you mean {nearest}?"


def test_strange_key_lists_the_known_ones() -> None:
    (problem,) = problems_of(with_value("log.zzzzzz", 1), TrainConfig)
    assert "known keys: log.every_steps" in problem


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    run_file = tmp_path / "run.toml"
    run_file.write_text('name = "x"\n[target]\n[train]\nepochs = 0\nlr = 1\n', "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(run_file)
    problems = caught.value.problems
    keys = ("target.path", "data", "train.epochs", "train.lr")
    assert all(problem.startswith(f"{run_file}: ") for problem in problems)
    assert all(any(f" {key}: " in problem for problem in problems) for key in keys)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        pytest.param({"data": {"max_length": 4096}}, "data.buckets", id="no-bucket-holds-it"),
        pytest.param({"data": {"buckets": [64, 64]}}, "data.buckets", id="equal-buckets"),
        pytest.param({"data": {"buckets": []}}, "data.buckets", id="no-bucket"),
        pytest.param({"target": {"layer_ids": [3, 1]}}, "target.layer_ids", id="falling-layers"),
        pytest.param({"train": {"peak_lr": float("inf")}}, "train.peak_lr", id="infinite"),
        pytest.param(
            {"train": {"schedule": "wsd", "warmup_fraction": 0.9}},
            "train.decay_fraction",
            id="warm-up-meets-decay",
        ),
    ],
)
def test_contradicting_settings_are_refused(
    tmp_path: Path, changes: dict[str, dict[str, Any]], key: str
) -> None:
    raw = {**MINIMAL, **{name: {**MINIMAL.get(name, {}), **changes[name]} for name in changes}}
    run_file = tmp_path / "run.toml"
    run_file.write_text(toml_of(raw), "utf-8")
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        load_config(run_file)


@pytest.mark.parametrize("text", ["name = ", "\xff\xfe", "[a]\n[a]\n", f"a = {'[' * 9_999}"])
def test_broken_toml_is_one_line(tmp_path: Path, text: str) -> None:
    run_file = tmp_path / "run.toml"
    run_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load_config(run_file)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{run_file}: not valid TOML: ")
    assert "\n" not in problem


def test_missing_run_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: cannot read"):
        load_config(tmp_path / "nothing.toml")


def test_relative_paths_start_at_the_run_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    run_file = tmp_path / "run.toml"
    run_file.write_text(toml_of(MINIMAL), "utf-8")
    config = load_config(run_file)
    assert config.data.train == str(tmp_path / "a.jsonl")
    assert config.target.path == str(tmp_path / "model")


@pytest.mark.parametrize(
    ("path", "is_local"),
    [
        ("./model", True),
        ("/models/x", True),
        ("x.gguf", True),
        ("org/model", False),
        ("package:name/file.gguf", False),
    ],
)
def test_target_forms(path: str, is_local: bool) -> None:
    assert is_local_path(path) is is_local


def test_missing_files_are_named_with_key_and_path(tmp_path: Path) -> None:
    run_file = tmp_path / "run.toml"
    raw = with_value("target.path", "./nowhere")
    run_file.write_text(toml_of(raw), "utf-8")
    with pytest.raises(ConfigError) as caught:
        check_inputs(load_config(run_file))
    assert caught.value.problems == (
        f"data.train: no file at {tmp_path / 'a.jsonl'}",
        f"data.held_out: no file at {tmp_path / 'b.jsonl'}",
        f"target.path: nothing at {tmp_path / 'nowhere'}",
    )


@pytest.mark.parametrize("run_file", sorted(RUNS.glob("*.toml")), ids=lambda path: path.stem)
def test_bundled_run_files_are_valid_and_their_data_is_there(run_file: Path) -> None:
    check_inputs(load_config(run_file))


def test_resolved_config_is_a_fixed_point(tmp_path: Path) -> None:
    run_file = tmp_path / "run.toml"
    run_file.write_text(toml_of(MINIMAL), "utf-8")
    config = load_config(run_file)
    without_unset = msgspec.json.decode(msgspec.json.encode(to_builtins(config)))
    assert msgspec.convert(without_unset, TrainConfig) == config


@pytest.mark.parametrize(
    ("block_size", "gamma", "expected"),
    [(16, None, 7.0), (10, None, 5.0), (8, None, 4.0), (4, None, 1.8), (16, 2.0, 2.0)],
)
def test_gamma_follows_the_block_size(
    block_size: int, gamma: float | None, expected: float
) -> None:
    raw = with_value("draft.block_size", block_size)
    raw["train"] = {} if gamma is None else {"gamma": gamma}
    assert msgspec.convert(raw, TrainConfig).gamma == pytest.approx(expected)


def test_every_field_has_a_docstring_and_words_for_its_type() -> None:
    sections = [TrainConfig] + [
        field.type
        for field in msgspec.structs.fields(TrainConfig)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    ]
    for section in sections:
        source = inspect.getsource(section)
        for field in msgspec.structs.fields(section):
            assert describe(field.type)
            if section is not TrainConfig or field.name == "name":
                _, _, after = source.partition(f"    {field.name}: ")
                _, newline, rest = after.partition('\n    """')
                assert newline, field.name
                assert len(after) - len(rest) < 200, f"{field.name} has no docstring"


def test_importing_config_and_sizes_loads_no_torch() -> None:
    code = (
        "import sys, train.config, train.sizes, train.conversations, train.run_folder;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


toml_values = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
known_names = st.sampled_from(
    ["name", "target", "draft", "data", "train", "eval", "path", "epochs"]
)


@given(st.dictionaries(known_names | st.text(max_size=8), toml_values, max_size=4))
def test_any_table_gives_a_config_or_problems(raw: dict[str, Any]) -> None:
    problems = problems_of(raw, TrainConfig)
    if problems:
        assert all(": " in problem for problem in problems)
    else:
        msgspec.convert(raw, TrainConfig)


@given(st.text(max_size=60))
def test_any_text_gives_a_config_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    run_file = tmp_path_factory.getbasetemp() / "any.toml"
    run_file.write_text(text, "utf-8")
    with pytest.raises(ConfigError):
        load_config(run_file)


def test_bundled_run_files_hold_only_what_differs() -> None:
    for run_file in RUNS.glob("*.toml"):
        raw = tomllib.loads(run_file.read_text("utf-8"))
        defaults = to_builtins(msgspec.convert(MINIMAL, TrainConfig))
        for section in ("train", "eval", "log"):
            for key, value in raw.get(section, {}).items():
                assert value != defaults[section][key], f"{run_file.name}: {section}.{key}"
