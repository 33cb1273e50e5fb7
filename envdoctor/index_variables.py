"""Environment variables in the addresses of a profile's indexes: `https://${USER}:${TOKEN}@host/`.

So a profile that is shared holds no password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from envdoctor.errors import UserFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envdoctor.profile import IndexSection, Profile

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def with_variables(profile: Profile, variables: Mapping[str, str]) -> Profile:
    """Return a profile with the variables in its indexes' addresses replaced by their values.

    A value before the `@` of the address is escaped, so that it may hold any character.

    Raises:
        UserFileError: A variable is not set.
    """
    indexes = tuple(_replaced(index, variables) for index in profile.index)
    return msgspec.structs.replace(profile, index=indexes)


def _replaced(index: IndexSection, variables: Mapping[str, str]) -> IndexSection:
    credentials, at, rest = index.url.rpartition("@")

    def value(match: re.Match[str]) -> str:
        found = variables.get(match[1])
        if found is None:
            raise UserFileError(
                f"index {index.name}: url names the variable {match[1]}, which is not set",
                reference="variable-not-set",
                hint=f"export {match[1]}=...",
            )
        return found

    hidden = _VARIABLE.sub(lambda match: quote(value(match), safe=""), credentials)
    return msgspec.structs.replace(index, url=hidden + at + _VARIABLE.sub(value, rest))
