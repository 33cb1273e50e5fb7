"""The receipt of an environment: what was asked, what came, from where, and what the check said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from envdoctor import durable
from envdoctor.interpreter import Interpreter
from envdoctor.manifest import Tree
from envdoctor.profile import Profile
from envdoctor.pylock import Wheel
from envdoctor.urls import mask

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1


class UvRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The uv that built."""

    path: str
    version: str
    sha256: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One finished build, or adoption.

    Args:
        schema: Version of this document.
        id: Hash of what decides the environment's content; equal builds have equal ids.
        generation: Name of the environment's folder.
        previous: Generation that was current before; None for the first.
        profile: The profile as it was, every default written out, credentials masked.
        profile_sha256: Of the profile's content.
        asked: The profile as it was named: a bundled one's name, or the path of a file; empty in
            receipts of envdoctor before it was written down.
        added: Requirements that were added to the profile's for this build.
        adopted: Folder of an environment that was not built here but taken over as it was, and of
            whose packages only names and versions are known; empty for one that was built.
        source: Where torch came from, in words.
        left_out: Sources that did not serve, each with the reason.
        packages: Every file that was installed.
        python: The interpreter.
        uv: The installer; None where it is not known.
        envdoctor_version: Of this program.
        host: Facts of the machine, as in the report.
        link_mode: How files came out of uv's cache.
        variables_dropped: Names of environment variables that the build did not pass on.
        started: UTC.
        finished: UTC.
        seconds: By stage.
        report: What `envdoctor check` said of the environment.
        tree: Hashes of its files; None in receipts of envdoctor before there were any.
    """

    schema: int = SCHEMA_VERSION
    id: str
    generation: str
    previous: str | None
    profile: dict[str, Any]
    profile_sha256: str
    asked: str = ""
    added: tuple[str, ...] = ()
    adopted: str = ""
    source: str
    left_out: tuple[tuple[str, str], ...]
    packages: tuple[Wheel, ...]
    python: Interpreter
    uv: UvRecord | None
    envdoctor_version: str
    host: dict[str, Any]
    link_mode: str
    variables_dropped: tuple[str, ...]
    started: str
    finished: str
    seconds: dict[str, float]
    report: dict[str, Any]
    tree: Tree | None = None

    def wanted(self) -> Profile | None:
        """Return the profile; None if this version of envdoctor no longer reads it."""
        try:
            return msgspec.convert(self.profile, Profile)
        except msgspec.ValidationError:
            return None


def write(receipt: Receipt, path: Path) -> None:
    """Write a receipt in one step: either all of it is there, or nothing."""
    text = mask(msgspec.json.format(msgspec.json.encode(receipt), indent=2).decode())
    durable.replace_text(path, text + "\n")


def read(path: Path) -> Receipt | None:
    """Read a receipt; None if there is none or it is not one that this version reads."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Receipt)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
