"""Where `profiles/` and `train/` are, in an installed wheel or in a checkout."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.errors import EnvdoctorError

if TYPE_CHECKING:
    from types import ModuleType


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


def trainer_module(name: str) -> ModuleType:
    """Import one of the trainer's modules that need no torch.

    Args:
        name: `config`, `settings`, `sizes`, or `commands`, which lists the sub-commands.
    """
    folder = str(bundled("train").parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(f"train.{name}")
