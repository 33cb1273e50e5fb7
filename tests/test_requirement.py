"""Requirements are read as `packaging` reads them, plainly written or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Reference
from packaging.version import InvalidVersion, Version

from envdoctor.requirement import InvalidRequirementError, parse

ENVIRONMENT = {
    "extra": "",
    "implementation_name": "cpython",
    "implementation_version": "3.11.7",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_release": "6.1",
    "platform_system": "Linux",
    "platform_version": "",
    "python_full_version": "3.11.7",
    "python_version": "3.11",
    "sys_platform": "linux",
}
VERSION = st.from_regex(
    r"([0-9]!)?[0-9]{1,2}(\.[0-9]{1,2}){0,3}((a|b|rc)[0-9])?(\.post[0-9])?(\.dev[0-9])?(\+cu1[23]0)?",
    fullmatch=True,
)
CLAUSE = st.builds(
    lambda operator, version, star: f"{operator}{version}{star}",
    st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "~="]),
    VERSION,
    st.sampled_from(["", "", "", ".*"]),
)
CONDITION = st.sampled_from([
    'platform_system == "Linux"', "platform_system == 'Windows'", 'platform_machine == "x86_64"',
    'python_version >= "3.12"', 'extra == "cublas"', 'sys_platform != "darwin"',
    'python_version == "3.11"', '(os_name == "posix" or extra == "x")',
])  # fmt: skip
LINE = st.builds(
    lambda extras, clauses, conditions, braces: (
        f"nvidia-x{extras} "
        + (f"({','.join(clauses)})" if braces and clauses else ",".join(clauses))
        + (f"; {' and '.join(conditions)}" if conditions else "")
    ),
    st.sampled_from(["", "[cublas]", "[cublas, cudart]", "[]"]),
    st.lists(CLAUSE, max_size=3),
    st.lists(CONDITION, max_size=2),
    st.booleans(),
)


def reference(line: str) -> Reference | None:
    try:
        return Reference(line)
    except InvalidRequirement:
        return None


@given(LINE, VERSION, st.sampled_from([(), ("cublas",), ("x", "cublas")]))
def test_as_packaging_reads_it(line: str, version: str, extras: tuple[str, ...]) -> None:
    wanted = reference(line)
    if wanted is None:
        with pytest.raises(InvalidRequirementError):
            parse(line)
        return
    found = parse(line)
    assert found.name == wanted.name
    assert found.extras == wanted.extras
    assert found.specifier == ",".join(sorted(map(str, wanted.specifier)))
    values = [{**ENVIRONMENT, "extra": extra} for extra in extras] or [ENVIRONMENT]
    applies = not wanted.marker or any(wanted.marker.evaluate(value) for value in values)
    assert found.applies(ENVIRONMENT, extras) == applies
    assert found.is_met_by(version) == wanted.specifier.contains(Version(version), prereleases=True)


@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    wanted = reference(text)
    try:
        found = parse(text)
    except InvalidRequirementError:
        assert wanted is None
    else:
        assert wanted is not None
        assert found.name == wanted.name


@given(st.text(max_size=20))
def test_version_that_is_none_meets_nothing(text: str) -> None:
    requirement = parse("nvidia-x>=0")
    try:
        Version(text)
    except InvalidVersion:
        assert not requirement.is_met_by(text)


@pytest.mark.parametrize(
    ("line", "version", "is_met"),
    [
        ("nvidia-nccl-cu12==2.27.5", "2.27.5", True),
        ("nvidia-nccl-cu12==2.27.5", "2.27.5.0", True),
        ("nvidia-nccl-cu12==2.27.5", "2.27.50", False),
        ("torch==2.10.0", "2.10.0+cu128", True),
        ("torch (==2.11.0)", "2.11.0+cu130", True),
        ("torch==2.10.0+cu128", "2.10.0+cu130", False),
        ("torch>2.10", "2.10.0+cu128", False),
        ("triton~=3.8.0", "3.8.1", True),
        ("triton~=3.8.0", "3.9.0", False),
        ("cuda-bindings<14,>=13.0.3", "13.2.0", True),
        ("cuda-bindings<14,>=13.0.3", "14.0.0", False),
        ("torch", "2.11.0.dev20260101+cu130", True),
        ("torch>=2.10", "unknown", False),
    ],
)
def test_versions(line: str, version: str, *, is_met: bool) -> None:
    assert parse(line).is_met_by(version) == is_met
