from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from envdoctor.check import check
from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.checks.suppressions import suppression_without_effect
from envdoctor.errors import UsageError, UserFileError
from envdoctor.facts import FactSet, HostFact, Suppression
from envdoctor.profile import known_names, load_profile
from envdoctor.report import Report
from envdoctor.runner import run
from envdoctor.suppressions import chosen_suppressions
from envdoctor.verdict import Ok, Problem, Remedy, Severity, Skipped, Verdict

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = """
schema = 1
name = "mine"
[torch]
version = "2.10.0"
variant = "cu128"
[check]
ignore = [ENTRY]
"""
PAGE = "\n\n## What it checks\n.\n\n## Why it matters\n.\n\n## Remedy\n.\n\n## Source\n.\n"
HOST = HostFact(machine="x86_64", kernel="6", glibc=None, shm_bytes=1, disk_free_bytes=None)


def problem(culprit: str, severity: Severity = Severity.ERROR) -> Problem:
    return Problem(
        culprit=culprit, message=culprit, severity=severity, remedy=Remedy(kind="x", text="x")
    )


def two_things_wrong(host: HostFact) -> Verdict:
    return tuple(problem(name) for name in ("sglang", "vllm") if host.machine)


def a_consequence(host: HostFact) -> Verdict:
    return Ok("judged" if host.machine else "")


def one_failing(host: HostFact) -> Verdict:
    return Skipped("not here") if host.kernel == "none" else Ok()


def a_bug(host: HostFact) -> Verdict:
    raise KeyError(host.machine)


for _function in (two_things_wrong, a_consequence, one_failing, a_bug):
    _function.__doc__ = f"Title.{PAGE}"

CHECKS = (
    check()(two_things_wrong),
    check(requires=["two-things-wrong"])(a_consequence),
    check()(one_failing),
    check()(a_bug),
    suppression_without_effect,
)


def report(*suppressions: Suppression, host: HostFact = HOST) -> Report:
    findings = run(CHECKS, FactSet([host]), suppressions=suppressions)
    return Report(environment={}, findings=findings)


def suppress(check: str, culprit: str = "*") -> Suppression:
    return Suppression(check=check, reason="known", culprit=culprit)


def outcomes(found: Report, check: str) -> list[object]:
    return [item.outcome for item in found.findings if item.check == check]


def test_without_suppressions_nothing_is_suppressed() -> None:
    found = report()
    assert [item.culprit for item in found.problems()] == ["sglang", "vllm"]
    assert isinstance(outcomes(found, "a-consequence")[0], Skipped)
    assert isinstance(outcomes(found, "suppression-without-effect")[0], Skipped)
    assert found.exit_code == 1


def test_suppressed_problem_stays_in_the_report_and_does_not_count() -> None:
    found = report(suppress("two-things-wrong"), suppress("a-bug"))
    assert found.problems() == []
    assert found.exit_code == 0
    summary = found.to_dict()["summary"]
    assert (summary["errors"], summary["crashed"], summary["suppressed"]) == (0, 0, 3)
    entries = [item for item in found.to_dict()["findings"] if item["suppressed"]]
    assert [item["outcome"] for item in entries] == ["problem", "problem", "crashed"]
    assert {item["suppressed"] for item in entries} == {"known"}


def test_what_requires_a_suppressed_check_is_judged() -> None:
    found = report(suppress("two-things-wrong"))
    assert outcomes(found, "a-consequence") == [Ok("judged")]


def test_suppression_of_one_culprit_leaves_the_other() -> None:
    found = report(suppress("two-things-wrong", "sgl*"))
    assert [item.culprit for item in found.problems()] == ["vllm"]
    assert isinstance(outcomes(found, "a-consequence")[0], Skipped)


@pytest.mark.parametrize(
    ("suppression", "host", "reported"),
    [
        pytest.param(suppress("two-things-wrong"), HOST, False, id="in-use"),
        pytest.param(suppress("two-things-wrong", "torch"), HOST, True, id="other-culprit"),
        pytest.param(suppress("one-failing"), HOST, True, id="nothing-wrong"),
        pytest.param(
            suppress("one-failing"),
            HostFact(machine="", kernel="none", glibc=None, shm_bytes=None, disk_free_bytes=None),
            False,
            id="check-could-not-look",
        ),
        pytest.param(suppress("not-selected"), HOST, False, id="check-did-not-run"),
    ],
)
def test_suppression_that_suppresses_nothing_is_reported(
    suppression: Suppression, host: HostFact, *, reported: bool
) -> None:
    found = report(suppression, host=host).problems(Severity.INFO)
    assert [item.culprit for item in found] == ([suppression.check] if reported else [])


def test_ignored_ids_become_suppressions() -> None:
    (found,) = chosen_suppressions(None, ["a-bug"], CHECKS)
    assert (found.check, found.origin, found.culprit) == ("a-bug", "--ignore", "*")


def test_suppression_of_an_unknown_check_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--ignore: no check is named 'a-bag'") as caught:
        chosen_suppressions(None, ["a-bag"], CHECKS)
    assert "a-bug" in caught.value.hint
    assert caught.value.exit_code == 2


def test_profile_names_suppressions_with_their_reasons(tmp_path: Path) -> None:
    entry = '{id = "stray-package", reason = "served from here", culprit = "vllm"}'
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE.replace("ENTRY", entry))
    (found,) = chosen_suppressions(load_profile(str(path)), (), BUILTIN_CHECKS)
    assert found == Suppression(
        check="stray-package", reason="served from here", culprit="vllm", origin="profile mine"
    )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        pytest.param('{id = "stray-package"}', "reason", id="no-reason"),
        pytest.param('{id = "stray-package", reason = ""}', "reason", id="empty-reason"),
        pytest.param('{id = "stray-package", reason = "r", why = "w"}', "why", id="unknown-key"),
    ],
)
def test_suppression_of_a_profile_needs_a_reason(tmp_path: Path, entry: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE.replace("ENTRY", entry))
    with pytest.raises(UserFileError, match=says):
        load_profile(str(path))


@pytest.mark.parametrize("name", known_names())
def test_suppressions_of_bundled_profiles_name_checks(name: str) -> None:
    chosen_suppressions(load_profile(name), (), BUILTIN_CHECKS)
