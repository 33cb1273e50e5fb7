"""Read what RECORD promises, whatever it holds, in bounded time and memory."""

from __future__ import annotations

from envdoctor.probes.files import UnreadableError, open_regular
from envdoctor.value import value

Row = tuple[str, str, int | None]
"""Path, digest such as `sha256=...` or empty, size in bytes or None."""

MAX_ROWS = 150_000
"""Rows that are followed; the longest RECORD seen (torch 2.10) has 12 thousand."""

_MATTERS = ("nvidia-", "cuda-")
_MATTERS_EXACTLY = frozenset({"torch", "triton", "pytorch-triton"})
_MAX_BYTES = 64 * 1024 * 1024
_MAX_LINE = 64 * 1024
_BLOCK = 1024 * 1024
_MAX_SIZE_DIGITS = 18


@value
class Record:
    """The rows of one RECORD that can be held against the disk, and why others were left out."""

    rows: list[Row]
    unread: tuple[str, ...] = ()


def read_record(path: str, *, max_rows: int = MAX_ROWS) -> Record:
    """Read a RECORD block by block.

    Args:
        path: The file.
        max_rows: Rows after these are left out.

    Raises:
        UnreadableError: It is missing, no regular file, too large, or lists nothing.
    """
    stream = open_regular(path, limit=_MAX_BYTES)
    if stream is None:
        raise UnreadableError("it is missing")
    rows: list[Row] = []
    unread: tuple[str, ...] = ()
    rest = b""
    with stream:
        while block := stream.read(_BLOCK):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            rows += parse_rows((whole + newline).decode("utf-8", "surrogateescape"))
            if len(rows) > max_rows:
                return Record(rows[:max_rows], (f"RECORD after its first {max_rows} rows",))
            if len(rest) > _MAX_LINE:
                rest, unread = b"", ("RECORD after a line that does not end",)
                break
    if rest:
        last = parse_rows(rest.decode("utf-8", "surrogateescape"))
        rows += last
        unread = () if last else ("RECORD after its last line, which is cut short",)
    if not rows:
        raise UnreadableError("it lists no file")
    return Record(rows, unread)


def parse_rows(text: str) -> list[Row]:
    """Return each row that can be held against the disk.

    Compiled bytecode is left out, since Python rewrites it. A size is None where RECORD gives
    none, as for RECORD itself.

    Source: PyPA "Recording installed projects" specification.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    is_plain = '"' not in text and "\0" not in text
    rows: list[Row] = []
    for line in text.split("\n"):
        try:
            path, digest, size = line.rsplit(",", 2) if is_plain else _unusual(line)
        except ValueError:
            continue
        if path and not path.endswith(".pyc"):
            is_number = size.isdecimal() and len(size) <= _MAX_SIZE_DIGITS
            rows.append((path, digest, int(size) if is_number else None))
    return rows


def _unusual(line: str) -> list[str]:
    """Return the fields of a line that may have quotes or null bytes; fewer if it is no row."""
    import csv  # noqa: PLC0415  few RECORDs have a quoted path

    if '"' in line and "\0" not in line:
        try:
            fields = next(csv.reader([line]), [])
        except csv.Error:  # a field beyond csv's limit
            return []
        return [*fields[:2], *fields[-1:]]
    return [] if "\0" in line else line.rsplit(",", 2)


def is_library(path: str) -> bool:
    """Tell whether a path is named like a shared object: `libx.so`, `libx.so.9`, `x.abi3.so`."""
    name = path.rpartition("/")[2]
    return name.endswith(".so") or ".so." in name


def matters(name: str) -> bool:
    """Tell whether a distribution's files decide if torch runs."""
    return name in _MATTERS_EXACTLY or name.startswith(_MATTERS)
