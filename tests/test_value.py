"""Values behave like frozen dataclasses: fields, defaults, comparison, hash, text, copies."""

from __future__ import annotations

from dataclasses import asdict, field, replace

import pytest

from envdoctor.value import keyword_value, value


@value
class Point:
    x: int
    y: int = 0
    note: str = field(default="", compare=False, repr=False)
    tags: list[str] = field(default_factory=list, compare=False)


@keyword_value
class Base:
    name: str


@keyword_value
class Child(Base):
    size: int = 1


def test_fields_by_position_and_name() -> None:
    assert (Point(1).x, Point(1).y) == (1, 0)
    assert Point(1, 2) == Point(y=2, x=1)
    assert Child(name="a", size=2).size == 2
    assert Point(1).tags is not Point(1).tags


@pytest.mark.parametrize(
    "make",
    [
        Point,
        lambda: Point(1, 2, "", [], 5),  # type: ignore[call-arg]
        lambda: Point(1, x=2),  # type: ignore[misc]
        lambda: Point(1, z=2),  # type: ignore[call-arg]
        lambda: Child("a"),  # type: ignore[call-arg]
        lambda: Child(size=1),  # type: ignore[call-arg]
    ],
)
def test_wrong_fields_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(TypeError):
        make()


def test_comparison_hash_and_text_go_by_the_fields_that_count() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert hash(Point(1, note="a")) == hash(Point(1, note="b"))
    assert Base(name="a") != Child(name="a")
    assert repr(Point(1, note="secret")) == "Point(x=1, y=0, tags=[])"


def test_it_is_a_dataclass_to_others() -> None:
    assert asdict(Child(name="a")) == {"name": "a", "size": 1}
    assert replace(Child(name="a"), size=3) == Child(name="a", size=3)
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
