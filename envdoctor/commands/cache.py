"""`envdoctor cache`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from envdoctor.commands.cache_views import looked, show_lines, surveyed
from envdoctor.commands.options import (
    PrefixOption,
    ProfileOption,
    PythonOption,
    print_json,
    profile_name,
)
from envdoctor.errors import ExitCode, UsageError


class Format(StrEnum):
    """How caches are described."""

    TEXT = "text"
    JSON = "json"


class Prunable(StrEnum):
    """What `prune` can remove."""

    CORRUPT = "corrupt"
    STALE = "stale"
    FOREIGN = "foreign"


ProfileName = Annotated[
    str | None,
    typer.Option("--profile", "-p", help="The current environment of this profile."),
]
DeepOption = Annotated[
    bool, typer.Option("--deep", help="Read and hash every byte; compute torch's keys anew.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]

cache = typer.Typer(
    help="Tell whether compile caches are valid here, clean, move and warm them.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@cache.command("status")
def status(
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileName = None,
    output: FormatOption = Format.TEXT,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every entry and what it was built for.")
    ] = False,
) -> None:
    """Show each cache that torch.compile, Triton, FlashInfer and CUDA use in an environment.

    Where it is and which variable decided that, whose it is, how large and old, and what its
    entries were built for. Nothing is unpickled, loaded or run.
    """
    from envdoctor.formats.cache_data import to_data
    from envdoctor.formats.cache_lines import status_lines

    scene, around, surveys = surveyed(python, prefix, profile, every=True)
    if output is Format.JSON:
        print_json(to_data(scene, around, surveys, entries=True))
    else:
        show_lines(status_lines(scene, around, surveys, verbose=verbose))


@cache.command("verify")
def verify(
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileName = None,
    deep: DeepOption = False,
    stamp: Annotated[
        bool,
        typer.Option("--stamp", help="With --deep: vouch for all entries that passed, as of now."),
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Class every entry: valid, stale, foreign, corrupt or unknown.

    valid: stamped (by `warm`, `import` or --stamp) for exactly this environment, and unchanged.
    stale: was stamped, but the driver or a variable is another one now, or the cache was moved.
    foreign: for another GPU, torch, Triton, Python or processor, or it belongs to another user.
    corrupt: cut short, empty, overwritten, not what was stamped, or left by a dead process.
    unknown: nothing is wrong with it, and nobody vouches for it.

    Exit code 1 if an entry is corrupt, a stamped one is gone, others can write to a cache, or a
    folder of it could not be read.
    """
    from envdoctor.caches.vouch import stamp_all
    from envdoctor.formats.cache_data import to_data
    from envdoctor.formats.cache_lines import is_in_order, verify_lines

    if stamp and not deep:
        raise UsageError("--stamp vouches for what --deep has read", reference="stamp-not-deep")
    scene, around, surveys = surveyed(python, prefix, profile, deep=deep)
    if output is Format.JSON:
        print_json(to_data(scene, around, surveys))
    else:
        show_lines(verify_lines(scene, around, surveys, deep=deep))
    if stamp:
        number = stamp_all(surveys, around.fingerprint, home=scene.home, by="verify")
        typer.echo(f"stamped {number} entries", err=True)
    raise typer.Exit(ExitCode.OK if all(map(is_in_order, surveys)) else ExitCode.PROBLEM)


@cache.command("prune")
def prune(
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileName = None,
    only: Annotated[
        list[Prunable] | None,
        typer.Option("--class", help="What to remove; repeatable. Default: corrupt."),
    ] = None,
    deep: DeepOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove entries that `verify` names, by exact path, after showing them.

    Valid and unknown entries always stay. Stale ones may still be of use (`cache warm` stamps them
    anew), foreign ones may be another environment's: they go with `--class` only. A file that has
    changed since it was shown stays as well.

    Exit code 1 if something could not be removed.
    """
    from envdoctor.caches.judge import CLASSES
    from envdoctor.caches.prune import chosen
    from envdoctor.caches.prune import prune as remove
    from envdoctor.formats.cache_lines import entry_lines, pruned_lines

    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError(
            "there is no terminal to ask on",
            reference="nobody-to-ask",
            hint="--yes removes, --dry-run only prints",
        )
    scene, _, surveys = surveyed(python, prefix, profile, deep=deep)
    wanted = {item.value for item in only or [Prunable.CORRUPT]}
    items = chosen(surveys, {name for name in CLASSES if name in wanted})
    if not items:
        typer.echo(f"nothing is {' or '.join(sorted(wanted))}")
        return
    show_lines(entry_lines(items))
    if dry_run or not (yes or typer.confirm("Remove these files?")):
        return
    done = remove(items, home=scene.home)
    show_lines(pruned_lines(done))
    raise typer.Exit(ExitCode.PROBLEM if done.left else ExitCode.OK)


@cache.command("export")
def export(
    target: Annotated[Path, typer.Argument(help="File to write; must not be there yet.")],
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileName = None,
) -> None:
    """Write the caches into one file, with the fingerprint of the environment.

    Every byte is read and hashed. Corrupt, stale and foreign entries are left out, and so are the
    CUDA driver's own cache and precompiled headers. A cache of which a part cannot be read is
    refused. Import it on a machine with the same GPU, torch, Triton and driver.

    Exit code 1 if a part of a cache could not be read.
    """
    from envdoctor.caches.export import export as write
    from envdoctor.formats.cache_lines import exported_lines

    _, around, surveys = surveyed(python, prefix, profile, deep=True)
    show_lines(exported_lines(write(surveys, around.fingerprint, target), target))


@cache.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="File that `export` wrote.")],
    *,
    python: PythonOption = None,
    prefix: PrefixOption = None,
    profile: ProfileName = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take a cache of other surroundings as well.")
    ] = False,
) -> None:
    """Put an exported cache into the caches that the environment uses here.

    A cache is code that will run as you: import only what you would run. Hashes are checked before
    anything is put into place, no file is replaced, nothing is unpickled. What was stamped where it
    was exported is stamped here. After an interruption, run it again.

    Exit codes: 1 it is from other surroundings, 6 it is damaged or would replace a file.
    """
    from envdoctor.caches.move import import_cache
    from envdoctor.formats.cache_lines import imported_lines

    scene, around, places = looked(python, prefix, profile)
    done = import_cache(source, places, around.fingerprint, home=scene.home, force=force)
    show_lines(imported_lines(done))


@cache.command("warm")
def warm(
    *,
    config: Annotated[Path, typer.Option("--config", "-c", help="Run file (TOML).")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Lay a setting over the run file, as the run will; may be given again.",
        ),
    ] = None,
    env: Annotated[
        Path | None, typer.Option(help="Warm in this environment instead of a built one.")
    ] = None,
    profile: ProfileOption = None,
) -> None:
    """Compile what a run needs, forward and backward, at every length, and stamp the caches.

    Takes the environment, variables and process layout that `envdoctor train` would take for the
    run, so that it then starts with nothing to compile, which its summary.json reports. If the
    caches are warm already, says so and does nothing.

    Exit codes: those of `envdoctor train`; 1 also if an entry that was stamped is corrupt now.
    """
    from envdoctor import settings
    from envdoctor.caches.warm import warm as compile_ahead
    from envdoctor.formats.cache_lines import warmed_lines
    from envdoctor.progress import Progress, byte_meter
    from envdoctor.train_request import TrainRequest

    wanted = profile_name(profile) if profile else None
    done = compile_ahead(
        TrainRequest(config=config, changes=tuple(changes or ()), env=env, profile=wanted),
        settings=settings.load(),
        talk=Progress(),
        progress=byte_meter("hashed"),
    )
    show_lines(warmed_lines(done))
    raise typer.Exit(done.code)
