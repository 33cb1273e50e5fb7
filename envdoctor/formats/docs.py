"""Write the table of checks into `checks/README.md`: `python -m envdoctor.formats.docs`.

With `--check` nothing is written; the exit code is 1 if the table is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.errors import EnvdoctorError
from envdoctor.formats.pages import table

README = Path(__file__).parents[1] / "checks/README.md"
_BEGIN = "<!-- table of checks: begin -->\n"
_END = "<!-- table of checks: end -->\n"


def with_table(text: str) -> str:
    """Return a document whose part between the markers is the table of all checks.

    Raises:
        EnvdoctorError: A marker is missing.
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise EnvdoctorError(
            f"{README} lacks {_BEGIN.strip()!r} or {_END.strip()!r}", reference="markers-missing"
        )
    return f"{before}{begin}\n{table(BUILTIN_CHECKS)}\n{end}{after}"


def main(arguments: list[str]) -> int:
    """Write the table, or tell whether it is stale; return the exit code."""
    text = README.read_text("utf-8")
    wanted = with_table(text)
    if text == wanted:
        return 0
    if "--check" in arguments:
        sys.stderr.write(f"{README} is stale; run python -m envdoctor.formats.docs\n")
        return 1
    README.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
