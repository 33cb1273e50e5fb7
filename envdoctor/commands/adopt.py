"""`envdoctor adopt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envdoctor.commands.options import ProfileOption, chosen_profile, hashing_meter


def adopt(
    prefix: Annotated[Path, typer.Argument(help="Folder of the environment.")],
    *,
    profile: ProfileOption = None,
) -> None:
    """Take over an environment that was made elsewhere, if every file of it is as recorded.

    Hashes every file that its packages recorded, runs the checks (with --profile also against the
    profile and its requirements), and writes a manifest and a receipt to ENVDOCTOR_HOME. Nothing in
    the environment is run or changed. From then on `envdoctor envs` lists it, `check --drift
    --prefix` tells what has changed in it, and `train --env` holds it against the same profile.
    Prints its folder.

    Exit codes: 1 it does not pass, with the report; 2 there is no such environment or profile; 7
    no space, or a home that cannot be written.
    """
    from envdoctor import settings
    from envdoctor.adoption import AdoptionRequest
    from envdoctor.adoption import adopt as run
    from envdoctor.profile import reference
    from envdoctor.progress import Progress

    wanted = chosen_profile(profile)
    asked = "" if wanted is None or profile is None else profile
    request = AdoptionRequest(
        prefix=prefix,
        profile=wanted,
        asked=(wanted.name if wanted else "") if asked == "auto" else reference(asked),
        progress=hashing_meter(),
    )
    typer.echo(run(request, settings=settings.load(), talk=Progress()).adopted)
