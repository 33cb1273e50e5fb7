from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from train.durable import write_whole
from train.journal import Journal
from train.settings import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"target": "a", "sizes": (1, 2)}


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "j.jsonl"
    with Journal(path, SETTINGS) as journal:
        assert journal.entries == []
        journal.append([{"a": 1}, {"b": "\u00e9"}])
        journal.append([])
    with Journal(path, SETTINGS) as journal:
        assert journal.entries == [{"a": 1}, {"b": "\u00e9"}]
        journal.append([{"c": 3}])
        assert journal.entries[-1] == {"c": 3}
    assert path.read_text().count("\n") == 4


def test_a_file_that_was_cut_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, SETTINGS) as journal:
        journal.append({"number": i} for i in range(3))
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = max(0, whole[:size].count(b"\n") - 1)
        with Journal(path, SETTINGS) as journal:
            assert journal.entries == [{"number": i} for i in range(kept)]
            journal.append([{"last": True}])
        with Journal(path, SETTINGS) as journal:
            assert journal.entries[kept:] == [{"last": True}]


def test_other_settings_are_refused_by_name_with_both_values(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    Journal(path, SETTINGS).__exit__()
    before = path.read_bytes()
    with pytest.raises(ConfigError) as caught:
        Journal(path, {"target": "b", "sizes": [1, 2], "new": None, "more": 1})
    wanted = "continue with the former, or name another output"
    assert caught.value.problems == (
        f"{path}: begun with more = null, asked for 1; {wanted}",
        f'{path}: begun with target = "a", asked for "b"; {wanted}',
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["x\n", "{}\n", "[1]\n", "3\n", '{"settings": 3}\n'])
def test_another_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="not a journal of this command"):
        Journal(path, SETTINGS)
    assert path.read_text() == text


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with (
        Journal(path, SETTINGS),
        pytest.raises(ConfigError, match="another process is writing it"),
    ):
        Journal(path, SETTINGS)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        Journal(tmp_path / "file" / "j.jsonl", SETTINGS)


def test_what_does_not_fit_is_one_line_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path, SETTINGS) as journal:
        journal.append([{"number": 1}])
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, limits[1]))
        try:
            with pytest.raises(ConfigError, match=r"j\.jsonl: cannot be written: File too large"):
                journal.append([{"number": 2}])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Journal(path, SETTINGS) as journal:
        assert journal.entries == [{"number": 1}]


def test_whole_files_replace_others(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write_whole(path, "old\n")
    write_whole(path, "new\n")
    assert [one.name for one in tmp_path.iterdir()] == ["out.jsonl"]
    assert path.read_text() == "new\n"
