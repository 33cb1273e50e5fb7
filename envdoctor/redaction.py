"""Take what identifies people and machines, and what gives access, out of what is shared."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from envdoctor.facts import FactSet, UserFact, VariablesFact
from envdoctor.urls import mask

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "<redacted>"

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{16,}|nvapi-[\w-]{16,}|wandb_v1_\w{16,}|AKIA[A-Z0-9]{12,}|xox[abp]-[\w-]{10,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)|(?<=Bearer )[\w.~+/-]{8,}=*"
)
_HOMES = re.compile(r"(/(?:home|Users|data/home|mnt/home)/)(?!USER\b)[^/\s:'\",;]+")
_IMPERSONAL = frozenset(
    {
        "admin", "app", "conda", "cuda", "docker", "home", "jovyan", "lib", "local", "localhost",
        "nvidia", "opt", "python", "pytorch", "root", "runner", "test", "torch", "train", "triton",
        "ubuntu", "user", "usr", "var", "venv",
    }
)  # fmt: skip
"""Names that tell nothing of anybody, and that stand for other things elsewhere."""

_MIN_NAME = 3


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces names, home folders and credentials in text.

    Args:
        homes: Home folders, which become `~`.
        users: User names, which become `USER`.
        hosts: Host names, which become `HOST`.
    """

    homes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def text(self, value: str) -> str:
        """Return a text without what identifies anybody or gives access."""
        value = _SECRET_VALUE.sub(HIDDEN, mask(value))
        for home in self.homes:
            value = re.sub(rf"{re.escape(home)}(?=/|$|[\s:'\",;])", "~", value)
        value = _HOMES.sub(r"\1USER", value)
        for names, instead in ((self.hosts, "HOST"), (self.users, "USER")):
            for name in names:
                value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", instead, value)
        return value

    def apply(self, value: Any) -> Any:
        """Return a value of the same kind with all its texts redacted.

        Takes what facts, reports and JSON are made of: dataclasses, tuples, lists, dictionaries
        and plain values.
        """
        if isinstance(value, str) and type(value) is str:
            return self.text(value)
        if isinstance(value, VariablesFact):
            return VariablesFact(values=tuple(self._variable(*pair) for pair in value.values))
        if is_dataclass(value) and not isinstance(value, type):
            names = (field.name for field in fields(value) if field.init)
            return replace(value, **{name: self.apply(getattr(value, name)) for name in names})
        if isinstance(value, tuple | list):
            return type(value)(map(self.apply, value))
        if isinstance(value, dict):
            return {self.apply(key): self.apply(item) for key, item in value.items()}
        return value

    def facts(self, facts: FactSet) -> FactSet:
        """Return facts without what identifies anybody or gives access."""
        reasons = {kind: self.apply(why) for kind, why in facts.unavailable.items()}
        return FactSet(map(self.apply, facts), reasons)

    def _variable(self, name: str, value: str) -> tuple[str, str]:
        return name, HIDDEN if _SECRET_NAME.search(name) else self.text(value)


def redactor_for(facts: FactSet, *, hosts: Iterable[str] = ()) -> Redactor:
    """Return a redactor that knows the names that facts tell.

    Args:
        facts: Facts of the machine that is to be shared.
        hosts: Names of that machine.
    """
    homes: set[str] = set()
    users: set[str] = set()
    user, variables = facts.get(UserFact), facts.get(VariablesFact)
    if isinstance(user, UserFact) and user.home:
        homes.add(user.home)
    if isinstance(variables, VariablesFact):
        values = dict(variables.values)
        homes |= {values[name] for name in ("HOME",) if name in values}
        users |= {values[name] for name in ("USER", "LOGNAME", "USERNAME") if name in values}
    if isinstance(user, UserFact) and user.name:
        users.add(user.name)
    users |= {home.rstrip("/").rpartition("/")[2] for home in homes}
    names = {part for host in hosts for part in (host, host.partition(".")[0])}
    homes = {home.rstrip("/") for home in homes} - {""}
    return Redactor(
        homes=_longest_first(homes),
        users=_longest_first(filter(_is_personal, users)),
        hosts=_longest_first(filter(_is_personal, names)),
    )


def this_host() -> str:
    """Return the name of the machine that envdoctor runs on."""
    return socket.gethostname()


def _is_personal(name: str) -> bool:
    return len(name) >= _MIN_NAME and name.lower() not in _IMPERSONAL


def _longest_first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names), key=lambda name: (-len(name), name)))
