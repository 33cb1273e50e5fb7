"""Values that are declared like dataclasses and cost next to nothing to declare.

`dataclass(frozen=True, slots=True)` writes and compiles six methods for each class, up to a
millisecond of CPU time; with a hundred kinds of value that was a third of the time that `envdoctor
check` took to start. Here all classes share the methods. That nobody changes a value is held by the
type checker alone.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """Make a class a value whose fields are given by position or name."""
    return _declare(kind, kw_only=False)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def keyword_value(kind: type[T]) -> type[T]:
    """Make a class a value whose fields are given by name."""
    return _declare(kind, kw_only=True)


def _declare(kind: type[T], *, kw_only: bool) -> type[T]:
    made = dataclass(kw_only=kw_only, init=False, eq=False, repr=False)(kind)
    methods = (
        ("__init__", _constructor(made, kw_only=kw_only)),
        ("__eq__", _equal),
        ("__hash__", _hash),
        ("__repr__", _text),
    )
    for name, method in methods:
        setattr(made, name, method)
    return made


def _constructor(kind: type[Any], *, kw_only: bool) -> Callable[..., None]:
    declared = fields(kind)
    order = () if kw_only else tuple(item.name for item in declared)
    names = frozenset(item.name for item in declared)
    defaults = {item.name: item.default for item in declared if item.default is not MISSING}
    factories = {
        item.name: item.default_factory for item in declared if item.default_factory is not MISSING
    }

    def construct(self: Any, *given: Any, **named: Any) -> None:
        if given:
            if len(given) > len(order) or not named.keys().isdisjoint(order[: len(given)]):
                raise TypeError(f"{kind.__name__} takes {', '.join(order) or 'names only'}")
            named.update(zip(order, given, strict=False))
        values = {**defaults, **named}
        for name, make in factories.items():
            if name not in named:
                values[name] = make()
        if values.keys() != names:
            wrong = ", ".join(sorted(values.keys() ^ names))
            raise TypeError(f"{kind.__name__}: missing or unknown: {wrong}")
        self.__dict__.update(values)

    return construct


def _values(item: Any) -> tuple[Any, ...]:
    return tuple(getattr(item, field.name) for field in fields(item) if field.compare)


def _equal(self: Any, other: object) -> bool:
    if type(self) is not type(other):
        return False
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash((type(self), _values(self)))


def _text(self: Any) -> str:
    shown = (field.name for field in fields(self) if field.repr)
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__name__}({inside})"
