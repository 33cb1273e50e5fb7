from __future__ import annotations

import pytest

from envdoctor.check import check
from envdoctor.facts import ContainerFact, FactSet, HostFact
from envdoctor.verdict import Ok, Skipped, Verdict

PAGE = """A title.

## What it checks
x
## Why it matters
x
## Remedy
x
## Source
x
"""


def needs_both(container: ContainerFact, host: HostFact) -> Verdict:
    return Ok(f"{container.kind} {host.kernel}")


def can_do_without(container: ContainerFact | None) -> Verdict:
    return Ok(container.kind if container else "unknown")


def reads_no_fact(container: int) -> Verdict:
    return Ok(str(container))


def reads_either(fact: ContainerFact | HostFact) -> Verdict:
    return Ok(str(fact))


for function in (needs_both, can_do_without, reads_no_fact, reads_either):
    function.__doc__ = PAGE


def test_check_without_a_fact_is_skipped_with_the_reason() -> None:
    facts = FactSet([ContainerFact()]).lacking(HostFact, "no permission")
    assert check()(needs_both).evaluate(facts) == (Skipped("no permission"),)


def test_optional_fact_is_none_where_it_could_not_be_read() -> None:
    item = check()(can_do_without)
    assert item.evaluate(FactSet([])) == (Ok("unknown"),)
    assert item.evaluate(FactSet([ContainerFact(kind="docker")])) == (Ok("docker"),)


@pytest.mark.parametrize("function", [reads_no_fact, reads_either])
def test_parameter_that_is_no_one_fact_is_refused(function: object) -> None:
    with pytest.raises(TypeError, match="is no fact"):
        check()(function)  # type: ignore[arg-type]
