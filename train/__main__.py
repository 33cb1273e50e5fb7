"""`python -m train`: train a drafter, or one of the sub-commands in `train.commands`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING

from train.commands import COMMANDS
from train.exit_codes import ExitCode, exit_code_of
from train.settings import ConfigError
from train.signals import InterruptedRunError, StopSignal

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code.

    0 done; 1 a self-test or check failed; 2 the arguments, or a file that the user wrote, cannot be
    used; 3 a bug; 7 no space, or an unsuitable file system; 130 stopped by Ctrl-C or SIGTERM.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments.pop(0) if arguments and not arguments[0].startswith("-") else None
    parser = _parser(name)
    if name and name not in COMMANDS:
        parser.error(f"no sub-command is named {name!r}; there are: {', '.join(COMMANDS)}")
    command = import_module(f"train.commands.{(name or 'train').replace('-', '_')}")
    parser.description = command.__doc__
    command.add_arguments(parser)
    options = parser.parse_args(arguments)
    stop = StopSignal()
    try:
        with stop.installed():
            return int(command.run(options))
    except ConfigError as error:
        sys.stderr.writelines(f"error: {problem}\n" for problem in error.problems)
        return ExitCode.USAGE
    except InterruptedRunError:
        sys.stderr.write("stopped\n")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output went away, as `| head` does; a flush at the end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.INTERRUPTED if stop.requested else ExitCode.OK
    except Exception as error:  # noqa: BLE001  what else reaches the edge of the process is a bug
        code = exit_code_of(error)
        if code is None:
            traceback.print_exc()
            return ExitCode.INTERNAL
        sys.stderr.write(f"error: {error}\n")
        return code


def _parser(name: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.prog = f"python -m train {name or ''}".strip()
    if name is None:
        parser.usage = "%(prog)s --config FILE [...] | SUB-COMMAND [...]"
        listed = "".join(f"  {one:<14}{what}\n" for one, what in COMMANDS.items())
        parser.epilog = f"sub-commands, each with its own --help:\n{listed}"
    return parser


if __name__ == "__main__":
    sys.exit(main())
