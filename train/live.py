"""The table that a person watches on a terminal; needs rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from train.progress import Progress, duration

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import RenderableType

    from train.progress import StepView

REFRESHES_PER_SECOND = 4
BAR_WIDTH = 40


class LiveProgress(Progress):
    """A table below the lines that stay, redrawn in place.

    Args:
        stream: The terminal.
    """

    def __init__(self, *, stream: TextIO) -> None:
        super().__init__(every_seconds=0.0, stream=stream)
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        # A second Ctrl-C ends the process at once, which would leave the cursor hidden.
        self._console.show_cursor(show=True)

    def update(self, text: str) -> None:
        """Show what is being done."""
        self._live.update(Text(text))

    def say(self, text: str) -> None:
        """Write a line that stays, above the table."""
        self._console.print(text, soft_wrap=True)

    def step(self, view: StepView) -> None:
        """Show how far the training is; the last step at once, as what follows replaces it."""
        self._live.update(drawn(view), refresh=view.is_last)

    def close(self) -> None:
        """Leave the terminal with the lines that stay."""
        self._live.stop()


def drawn(view: StepView) -> RenderableType:
    """Return a bar, and the table below it."""
    table = Table.grid(padding=(0, 2))
    for name, value in cells(view):
        table.add_row(Text(name, style="dim"), value)
    bar = ProgressBar(total=view.num_steps, completed=view.record["step"], width=BAR_WIDTH)
    # A bar does not end its line, which only an empty text behind it does.
    return Group(bar, Text(), table)


def cells(view: StepView) -> list[tuple[str, str]]:
    """Return name and value of each row of the table."""
    record = view.record
    slots = "  ".join(f"{share:.0%}" for share in record["accuracy"])
    rows: list[tuple[str, Any]] = [
        ("step", f"{record['step']} of {view.num_steps}, epoch {record['epoch'] + 1}"),
        ("loss", f"{record['loss']:.3f} nats"),
        ("right by slot", slots),
        ("acceptance, estimated", f"{record['estimated_acceptance_length']:.2f} tokens a pass"),
        ("learning rate", f"{record['learning_rate']:.2e}"),
        ("context tokens", f"{record['tokens_per_second']:,.0f} per second"),
        ("of the GPU's peak", record.get("mfu") and f"{record['mfu']:.1%}"),
        ("peak memory", f"{record['peak_memory_bytes'] / 1e9:.1f} GB"),
        ("left", duration(view.seconds_left)),
    ]
    return [(name, value) for name, value in rows if value]
