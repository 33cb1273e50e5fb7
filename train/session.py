"""What a run works with beside its models and data; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train.progress import Progress
    from train.run_folder import RunFolder
    from train.signals import StopSignal


@dataclass(frozen=True)
class StartTerms:
    """What a start was told on the command line beside the run file.

    Attributes:
        receipt_id: Id of the environment's receipt; None for one that envdoctor did not build.
        allow_data_change: Go on although the training data is not what it was.
    """

    receipt_id: str | None = None
    allow_data_change: bool = False


@dataclass(frozen=True)
class Session:
    """One process that works on a run.

    Attributes:
        folder: Where its files go.
        stop: Says that the user wants to stop.
        progress: Tells a person how far it is.
        terms: What this start was told.
    """

    folder: RunFolder
    stop: StopSignal
    progress: Progress
    terms: StartTerms
