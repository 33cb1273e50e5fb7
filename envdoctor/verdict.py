"""What a check may say, as values."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from envdoctor.value import keyword_value, value


class Severity(StrEnum):
    """How bad a problem is: only an error changes the exit code."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


Owner = Literal["user", "image", "admin"]
"""Who has to act: the user of the environment, who builds the image, who runs the host."""


@keyword_value
class Remedy:
    """What to do about a problem.

    Args:
        kind: Kebab-case class of the remedy, such as `reinstall-package`.
        text: One sentence for people.
        commands: Complete shell commands, in the order in which to run them.
    """

    kind: str
    text: str
    commands: tuple[str, ...] = ()


@keyword_value
class Evidence:
    """One reading that supports a problem.

    Args:
        subject: The file, package, variable or device that was read.
        expected: What it should be; empty if there is no single right value.
        found: What it is.
    """

    subject: str
    expected: str = ""
    found: str = ""


@value
class Ok:
    """The check looked and found nothing wrong."""

    note: str = ""


@value
class Skipped:
    """The check does not apply here, or could not look; never counted as health."""

    reason: str


@keyword_value
class Problem:
    """One thing that is wrong.

    Args:
        culprit: The distribution, path, device or variable at fault.
        message: One sentence that names the culprit, what was found and what was wanted.
        remedy: What cures it.
        severity: An error fails the run; a warning or an info note does not.
        owner: Who has to act.
        evidence: The readings behind the message.
    """

    culprit: str
    message: str
    remedy: Remedy
    severity: Severity = Severity.ERROR
    owner: Owner = "user"
    evidence: tuple[Evidence, ...] = ()


@value
class Crashed:
    """The check itself failed: a bug of ours, shown as such."""

    error: str


Verdict = Ok | Skipped | Problem | tuple[Problem, ...]
"""What a check returns; several problems if several culprits stand side by side."""

Outcome = Ok | Skipped | Problem | Crashed
"""One entry of a report; only the runner makes `Crashed`."""
