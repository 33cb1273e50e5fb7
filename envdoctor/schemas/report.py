"""The JSON form of a report as types; its JSON Schema is generated from them.

`python -m envdoctor.schemas.report` prints the schema that lies beside this module.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SCHEMA_ID = "urn:envdoctor:schema:report:1"
Count = Annotated[int, Meta(ge=0)]


class Evidence(msgspec.Struct, kw_only=True):
    """One reading that supports a problem."""

    subject: Annotated[str, Meta(description="The file, package, variable or device.")]
    expected: Annotated[str, Meta(description="Empty if there is no single right value.")]
    found: str


class Remedy(msgspec.Struct, kw_only=True):
    """What to do about a problem."""

    kind: Annotated[str, Meta(description="Kebab-case class, such as reinstall-package.")]
    text: Annotated[str, Meta(description="One sentence for people.")]
    commands: Annotated[list[str], Meta(description="Shell commands, in the order to run them.")]


class Finding(msgspec.Struct, kw_only=True):
    """What one check said; a check has several findings if several things are wrong."""

    check: Annotated[str, Meta(description="Id; `envdoctor explain ID` prints its page.")]
    outcome: Literal["ok", "problem", "skipped", "crashed"]
    severity: Annotated[
        Literal["error", "warning", "info"] | None, Meta(description="Of a problem.")
    ]
    culprit: Annotated[
        str | None, Meta(description="The distribution, path, device or variable at fault.")
    ]
    owner: Annotated[
        Literal["user", "image", "admin"] | None, Meta(description="Who has to act on a problem.")
    ]
    message: str
    evidence: list[Evidence]
    remedy: Remedy | None
    suppressed: Annotated[
        str | None, Meta(description="Why this does not count, from the profile or --ignore.")
    ]


class Host(msgspec.Struct, kw_only=True):
    """The machine; null where the kernel does not say."""

    machine: str
    kernel: str
    glibc: str | None
    shm_bytes: Count | None
    disk_free_bytes: Count | None


class Environment(msgspec.Struct, kw_only=True):
    """What was looked at; null where it was not read."""

    prefix: str | None
    python: str | None
    packages: Count | None
    torch: str | None
    cuda: str | None
    arch: list[str] | None
    driver: str | None
    gpus: list[str] | None
    host: Host | None
    loaded: Annotated[
        list[str] | None,
        Meta(description="Libraries of torch and CUDA that processes had loaded; with --probe."),
    ]
    not_judged: Annotated[
        list[str], Meta(description="What envdoctor could not look at, or does not judge yet.")
    ]


class Summary(msgspec.Struct, kw_only=True):
    """Counts of what counts; suppressed findings are counted apart."""

    exit_code: Annotated[int, Meta(description="Of the process: 0 fine, 1 problems.")]
    errors: Count
    warnings: Count
    notes: Count
    ok: Count
    skipped: Count
    crashed: Count
    suppressed: Count


class ReportDocument(msgspec.Struct, kw_only=True):
    """A report of `envdoctor check --format json`.

    Readers are to ignore keys they do not know: a version may gain keys, and none goes or changes
    its meaning.
    """

    schema_version: Literal[1]
    envdoctor_version: str
    environment: Environment
    summary: Summary
    findings: list[Finding]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a report."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **msgspec.json.schema(ReportDocument),
    }


def schema_text() -> str:
    """Return the JSON Schema of a report as it is published."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
