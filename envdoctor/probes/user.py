"""Read who runs the environment's processes."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, UserFact
from envdoctor.probes.files import UnreadableError, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.probes.subject import Subject

_HOME = 5
"""Column of the user database; Source: passwd(5)."""


def read_user(subject: Subject, facts: FactSet) -> UserFact:
    """Read the user's entry in the user database and whether the home folder can be written.

    Raises:
        LookupError: Another machine's root is inspected.
    """
    del facts
    if not subject.is_this_machine:
        raise LookupError("a mounted root does not tell who will run in it")
    uid = os.getuid()
    entry = _passwd_entry(subject.root, uid)
    name, passwd_home = entry or (None, None)
    home = subject.variables.get("HOME") or passwd_home
    return UserFact(
        uid=uid,
        has_passwd_entry=entry is not None,
        name=name,
        home=home,
        home_writable=bool(home) and os.access(str(home), os.W_OK | os.X_OK),
    )


def _passwd_entry(root: Path, uid: int) -> tuple[str, str] | None:
    """Return name and home folder of a user's entry; None if the user has no entry.

    The file is read first, since a name service behind the library call may be slow.
    """
    try:
        text = read_text(root / "etc/passwd") or ""
    except UnreadableError:
        text = ""
    rows = (line.split(":") for line in text.splitlines())
    row = next((row for row in rows if len(row) > _HOME and row[2] == str(uid)), None)
    if row is not None:
        return row[0], row[_HOME]
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return entry.pw_name, entry.pw_dir
