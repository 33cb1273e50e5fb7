"""Entry point of the command line: turns expected failures into one line and an exit code."""

from __future__ import annotations

import os
import sys

from envdoctor.errors import EnvdoctorError, ExitCode


def main() -> None:
    """Run the command line."""
    try:
        from envdoctor.cli import app  # noqa: PLC0415  Ctrl-C during the import is handled as well

        app()
    except EnvdoctorError as error:
        if report := getattr(error, "report", None):
            from envdoctor.render import report_lines, show  # noqa: PLC0415  only on this path

            show(report_lines(report), sys.stderr)
        sys.stderr.write(f"error[{error.reference}]: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"  hint: {error.hint}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does; a second flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)


if __name__ == "__main__":
    main()
