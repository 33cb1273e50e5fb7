"""What a failure of uv means, read out of its words: its exit codes say only 1 or 2."""

from __future__ import annotations

import re

from envdoctor.errors import (
    EnvdoctorError,
    IntegrityError,
    NoSolutionError,
    SourceError,
    SpaceError,
)
from envdoctor.urls import mask

_KINDS: tuple[tuple[type[EnvdoctorError], str, re.Pattern[str]], ...] = tuple(
    (kind, reference, re.compile(pattern, re.IGNORECASE))
    for kind, reference, pattern in (
        (
            SpaceError,
            "no-space",
            r"no space left|quota exceeded|file too large|os error (27|28|122)\b",
        ),
        (SpaceError, "read-only-file-system", r"read-only file system|os error 30\b"),
        (IntegrityError, "hash-mismatch", r"hash mismatch"),
        (
            IntegrityError,
            "wheel-not-valid",
            r"malformed wheel|must not use the reserved name|dist-info/RECORD`: No such file",
        ),
        (SourceError, "network-off", r"network was disabled|network connectivity is disabled"),
        (SourceError, "certificate-not-trusted", r"invalid peer certificate"),
        (
            SourceError,
            "source-unreachable",
            (
                r"failed to (fetch|download|read metadata|query)|error sending request|"
                r"lookup address|connection (refused|reset)|timed out|http status|request failed"
            ),
        ),
        (SourceError, "source-gives-torn-files", r"has an invalid package format"),
        (NoSolutionError, "no-solution", r"no solution found|unsatisfiable|no version of"),
    )
)

_CONFLICT = re.compile(
    r"no solution found.*?cause:\s+(?:because )?(.+?)(?:\n\s*\n|\Z)", re.IGNORECASE | re.DOTALL
)
_MISMATCH = re.compile(
    r"hash mismatch for `([^`]+)`\s+expected:\s+sha256:(\w+)\s+computed:\s+sha256:(\w+)",
    re.IGNORECASE,
)


def meaning(stderr: str) -> EnvdoctorError:
    """Return the error that uv's words mean, with the line that tells most."""
    for kind, reference, pattern in _KINDS:
        if match := pattern.search(stderr):
            message = _conflict(stderr) or _hashes(stderr) or cause(stderr)
            if kind is SpaceError and match[0].lower() not in message.lower():
                message = f"{message}: {match[0]}"
            return kind(message, reference=reference, hint=_hint(reference))
    return EnvdoctorError(f"uv failed: {cause(stderr)}", reference="uv-failed")


def cause(stderr: str) -> str:
    """Return uv's explanation in one line: its innermost cause with the first line above it."""
    lines = [line.strip() for line in mask(stderr).splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.lower().startswith(("error:", "cause:"))]
    if not starts:
        return lines[-1] if lines else "it said nothing"
    chosen = [lines[i] for i in dict.fromkeys((starts[0], starts[-1]))]
    return ": ".join(
        re.sub(r"^(error|cause):\s*", "", line, flags=re.IGNORECASE) for line in chosen
    )


def _conflict(stderr: str) -> str:
    """Return why no set of packages fits, without uv's last words; empty if it is not that."""
    match = _CONFLICT.search(mask(stderr))
    told = " ".join(match[1].split()) if match else ""
    return (
        told.removesuffix(".")
        .removesuffix("your requirements are unsatisfiable")
        .removesuffix(", we can conclude that ")
    )


def _hashes(stderr: str) -> str:
    """Return which file has which sha256 in place of which; empty if none is mentioned."""
    match = _MISMATCH.search(stderr)
    if not match:
        return ""
    return f"{match[1]}: the file has sha256 {match[3]}, wanted {match[2]}"


def is_cutoff_without_dates(stderr: str) -> bool:
    """Tell whether packages were left out because their source states no upload times.

    A package that is really too new is reported with its time of publication.
    """
    return "filtered by `exclude-newer`" in stderr and "was published at" not in stderr


def _hint(reference: str) -> str:
    return {
        "certificate-not-trusted": "set SSL_CERT_FILE, or pip's `cert`, to your certificates",
        "hash-mismatch": "the source changed the file since it was resolved; build again",
        "no-space": "free some, or set ENVDOCTOR_HOME to a folder on another file system",
    }.get(reference, "")
