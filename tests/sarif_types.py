"""The parts of SARIF 2.1.0 that envdoctor writes, as types that refuse anything else.

Source: OASIS, sarif-schema-2.1.0.json (errata 01): required keys, enumerations and formats of the
objects below.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# RFC 3986: characters that may stand in a URI reference; anything else must be percent-encoded.
Uri = Annotated[str, Meta(pattern=r"\A([A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-F]{2})+\Z")]
Level = Literal["none", "note", "warning", "error"]


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class Message(Strict):
    text: Annotated[str, Meta(min_length=1)]
    markdown: str | None = None


class ArtifactLocation(Strict):
    uri: Uri
    uri_base_id: str | None = None


class PhysicalLocation(Strict):
    artifact_location: ArtifactLocation


class LogicalLocation(Strict):
    fully_qualified_name: str


class Location(Strict):
    physical_location: PhysicalLocation
    logical_locations: list[LogicalLocation]


class RuleReference(Strict):
    id: str


class Notification(Strict):
    level: Level
    message: Message
    associated_rule: RuleReference | None = None


class Invocation(Strict):
    execution_successful: bool
    exit_code: int
    tool_execution_notifications: list[Notification]


class Suppression(Strict):
    kind: Literal["inSource", "external"]
    justification: str


class Result(Strict):
    rule_id: str
    level: Level
    message: Message
    locations: Annotated[list[Location], Meta(min_length=1)]
    partial_fingerprints: dict[str, str]
    properties: dict[str, Any]
    rule_index: Annotated[int, Meta(ge=-1)] = -1
    suppressions: list[Suppression] = []


class Rule(Strict):
    id: str
    short_description: Message
    full_description: Message
    help: Message


class Driver(Strict):
    name: str
    version: str
    rules: list[Rule]


class Tool(Strict):
    driver: Driver


class Run(Strict):
    tool: Tool
    column_kind: Literal["utf16CodeUnits", "unicodeCodePoints"]
    invocations: list[Invocation]
    results: list[Result]
    original_uri_base_ids: dict[str, ArtifactLocation] = {}


class Log(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    schema: str = msgspec.field(name="$schema")
    version: Literal["2.1.0"]
    runs: list[Run]
