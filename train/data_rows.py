"""Read the rows of a data source: JSONL, Parquet, or a data set of the hub; imports no torch."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from train.data_section import HUB_PREFIX
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

PARQUET_SUFFIX = ".parquet"
LIST_HINT = "; wanted one JSON object a line, not a list of them: jq -c '.[]' makes it"


@dataclass(frozen=True)
class DataRow:
    """One row as it was read.

    Args:
        where: Source and line or row number, from 1.
        value: What JSON gave; a table for Parquet.
        problem: Why nothing could be read; empty when something was.
    """

    where: str
    value: Any = None
    problem: str = ""


def data_rows(source: str) -> Iterator[DataRow]:
    """Yield the rows of a source, blank lines skipped.

    Args:
        source: A `.jsonl` file, also with `.gz` behind; a `.parquet` file; or
            `hub:OWNER/NAME[/CONFIG][:SPLIT]`, where the split is `train` if none is given. The
            last two are read by the package `datasets`.

    Raises:
        ConfigError: The source cannot be read.
    """
    if source.startswith(HUB_PREFIX):
        yield from _hub_rows(source)
    elif source.endswith(PARQUET_SUFFIX):
        if not Path(source).is_file():
            raise ConfigError([f"{source}: no such file"])
        yield from _loaded_rows(source, "parquet", data_files=source, split="train")
    else:
        yield from _json_lines(source)


def _json_lines(source: str) -> Iterator[DataRow]:
    try:
        with _opened(source) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _json_row(line, where=f"{source}:{number}")
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"{source}: cannot read the data file: {reason}"]) from error


def _opened(source: str) -> TextIO:
    # What is not UTF-8 comes as surrogates, so that `_json_row` can name its line.
    encoding, errors = "utf-8-sig", "surrogateescape"
    if source.endswith(".gz"):
        return gzip.open(source, "rt", encoding=encoding, errors=errors)
    return Path(source).open(encoding=encoding, errors=errors)


def _json_row(line: str, *, where: str) -> DataRow:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        byte = ord(line[error.start]) - 0xDC00
        place = f"found byte {byte:#04x} at character {error.start + 1}"
        return DataRow(where, problem=f"not valid UTF-8: {place}")
    try:
        return DataRow(where, json.loads(line))
    except (ValueError, RecursionError) as error:
        hint = LIST_HINT if line.lstrip().startswith("[") else ""
        return DataRow(where, problem=f"not valid JSON: {error}{hint}")


def _hub_rows(source: str) -> Iterator[DataRow]:
    name, _, split = source.removeprefix(HUB_PREFIX).partition(":")
    owner, *rest = name.split("/", maxsplit=2)
    if not all([owner, *rest]) or not rest:
        raise ConfigError([f"{source}: wanted {HUB_PREFIX}OWNER/NAME[/CONFIG][:SPLIT]"])
    config = rest[1] if len(rest) > 1 else None
    yield from _loaded_rows(source, f"{owner}/{rest[0]}", name=config, split=split or "train")


def _loaded_rows(source: str, path: str, **arguments: Any) -> Iterator[DataRow]:
    try:
        datasets: Any = import_module("datasets")  # optional, and takes a second
    except ModuleNotFoundError as error:
        raise ConfigError(
            [f"{source}: needs the package datasets, which is not installed here"]
        ) from error
    try:
        rows = iter(datasets.load_dataset(path, **arguments))
    except Exception as error:  # each of its file systems and formats has errors of its own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError([f"{source}: cannot be loaded: {reason}"]) from error
    for number, row in enumerate(rows, start=1):
        yield DataRow(f"{source}: row {number}", row)
