"""Entry point of the command line: turns expected failures into one line and an exit code."""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback

from envdoctor.errors import EnvdoctorError, ExitCode


def main() -> None:
    """Run the command line."""
    # A check makes half a million objects and no cycles worth looking for.
    gc.set_threshold(500_000)
    _ensure_output()
    try:
        _run()
    except EnvdoctorError as error:
        if report := getattr(error, "report", None):
            from envdoctor.render import report_lines, show  # noqa: PLC0415  only on this path

            show(report_lines(report), sys.stderr)
        sys.stderr.write(f"error[{error.reference}]: {_safe(error.message)}\n")
        if error.hint:
            sys.stderr.write(f"  hint: {_safe(error.hint)}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does; a second flush must not complain.
        _drop_output()
        sys.exit(ExitCode.OK)
    except Exception as error:  # noqa: BLE001  a bug of ours: exit code 1 would read as a finding
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            _drop_output()
            sys.stderr.write(f"error[no-space]: {error.strerror}: the output is not complete\n")
            sys.exit(ExitCode.SPACE)
        traceback.print_exc()
        sys.exit(ExitCode.INTERNAL)


def _run() -> None:
    from envdoctor.cli import app  # noqa: PLC0415  Ctrl-C during the import is handled as well

    try:
        app()
    except SystemExit as end:  # click makes it of both, and says nothing
        cause = end.__context__.__cause__ if end.__context__ else None
        for one in (end.__context__, cause):
            if isinstance(one, (BrokenPipeError, KeyboardInterrupt)):
                raise one from None
        raise


def _safe(text: str) -> str:
    """Return lines that give no credentials away and drive no terminal, whatever they quote."""
    from envdoctor.formats.printable import one_line  # noqa: PLC0415  only where something failed
    from envdoctor.urls import mask  # noqa: PLC0415  as above

    return "\n".join(map(one_line, mask(text).split("\n")))


def _ensure_output() -> None:
    """Write to nowhere if we were started without a stdout, as `>&-` does."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  until we end


def _drop_output() -> None:
    """Let what is still to be written to stdout go nowhere, also at the flush when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
