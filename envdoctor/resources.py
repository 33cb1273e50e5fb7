"""Where `profiles/` and `train/` are, in an installed wheel or in a checkout."""

from __future__ import annotations

from pathlib import Path

from envdoctor.errors import EnvdoctorError


def bundled(name: str) -> Path:
    """Return the folder of a part that is shipped beside the package.

    Args:
        name: `profiles` or `train`.

    Raises:
        EnvdoctorError: The installation lacks it.
    """
    package = Path(__file__).resolve().parent
    places = (package / "_bundled" / name, package.parent / name)
    for place in places:
        if place.is_dir():
            return place
    raise EnvdoctorError(
        f"{name}/ is missing; looked in {places[0]} and {places[1]}",
        reference="incomplete-installation",
        hint="install envdoctor anew",
    )
