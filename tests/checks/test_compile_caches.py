from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.facts import (
    CacheEntry,
    CacheFolder,
    CachesFact,
    CompileCachesFact,
    EntryClass,
    FactSet,
    PathStep,
    UserFact,
    VerifiedCache,
)
from envdoctor.probes.registry import collect
from envdoctor.runner import run, select
from envdoctor.verdict import Ok, Problem, Severity
from tests.caches.samples import H200, Bench, warmed

if TYPE_CHECKING:
    from pathlib import Path

    from envdoctor.verdict import Outcome

VALID = EntryClass(name="valid", num_entries=5, num_bytes=100, example="a")
UNKNOWN = EntryClass(name="unknown", num_entries=5, num_bytes=1, example="b", reason="nobody")
CORRUPT = EntryClass(name="corrupt", num_entries=2, num_bytes=1, example="c", reason="empty")
FOREIGN = EntryClass(name="foreign", num_entries=3, num_bytes=1, example="d", reason="for sm_80")


def judge(check: str, *facts: CachesFact | CompileCachesFact | UserFact) -> Outcome:
    findings = run(select(BUILTIN_CHECKS, [check]), FactSet(facts))
    (found,) = [item.outcome for item in findings if item.check == check]
    return found


def verified(*classes: EntryClass, missing: int = 0) -> CompileCachesFact:
    cache = VerifiedCache(kind="inductor", path="/c", classes=classes, num_missing=missing)
    return CompileCachesFact(caches=(cache,))


@pytest.mark.parametrize(
    ("fact", "wanted"),
    [
        pytest.param(CompileCachesFact(), "nothing was verified", id="nothing"),
        pytest.param(verified(VALID), "5 entries are valid", id="valid"),
        pytest.param(verified(UNKNOWN), "nothing was verified", id="unknown"),
    ],
)
def test_no_problem(fact: CompileCachesFact, wanted: str) -> None:
    assert judge("compile-cache-not-valid", fact) == Ok(wanted)


@pytest.mark.parametrize(
    ("fact", "severity", "message"),
    [
        pytest.param(
            verified(VALID, CORRUPT),
            Severity.WARNING,
            "inductor cache /c: 2 corrupt: c: empty",
            id="corrupt",
        ),
        pytest.param(
            verified(FOREIGN),
            Severity.INFO,
            "inductor cache /c: 3 foreign: d: for sm_80",
            id="foreign",
        ),
        pytest.param(
            verified(VALID, missing=4),
            Severity.WARNING,
            "inductor cache /c: 4 that were stamped are gone",
            id="gone",
        ),
    ],
)
def test_problem(fact: CompileCachesFact, severity: Severity, message: str) -> None:
    found = judge("compile-cache-not-valid", fact)
    assert isinstance(found, Problem)
    assert (found.severity, found.message, found.culprit) == (severity, message, "/c")
    assert bool(found.remedy.commands) == ("corrupt" in message)


def test_what_the_sample_told_is_not_told_twice() -> None:
    entries = tuple(CacheEntry(path=f"/c/{n}", modified=1, error="empty") for n in range(2))
    sampled = CachesFact(folders=(CacheFolder(kind="inductor", path="/c", entries=entries),))
    found = judge("compile-cache-not-valid", verified(VALID, CORRUPT), sampled)
    assert isinstance(found, Ok)
    assert found.note == "5 entries are valid; 2 corrupt, which damaged-cache-entry names"
    few = CachesFact(folders=(CacheFolder(kind="inductor", path="/c", entries=entries[:1]),))
    assert isinstance(judge("compile-cache-not-valid", verified(VALID, CORRUPT), few), Problem)


USER = UserFact(uid=1000, has_passwd_entry=True)
ROOT = PathStep(path="/", uid=0, mode=0o40755)


@pytest.mark.parametrize(
    ("steps", "culprit"),
    [
        pytest.param([("/c", 1000, 0o40700)], None, id="mine"),
        pytest.param([("/c", 1000, 0o40777)], "/c", id="open"),
        pytest.param([("/a", 0, 0o40777), ("/a/c", 1000, 0o40700)], "/a", id="below-an-open-one"),
        pytest.param([("/a", 0, 0o41777), ("/a/c", 1000, 0o40700)], None, id="below-a-sticky-one"),
        pytest.param([("/a", 7, 0o40755), ("/a/c", 1000, 0o40700)], "/a", id="below-anothers"),
        pytest.param([("/a", 65534, 0o40755), ("/a/c", 1000, 0o40700)], None, id="rootless"),
        pytest.param([("/c", 7, 0o40755)], None, id="anothers-is-another-checks"),
    ],
)
def test_ways_to_a_cache(steps: list[tuple[str, int, int]], culprit: str | None) -> None:
    way = tuple(PathStep(path=path, uid=uid, mode=mode) for path, uid, mode in steps)
    folder = CacheFolder(kind="inductor", path=way[-1].path, steps=(ROOT, *way))
    found = judge("cache-folder-open-to-all", CachesFact(folders=(folder,)), USER)
    assert (found.culprit if isinstance(found, Problem) else None) == culprit


def read(bench: Bench, *, deep: bool = False) -> CompileCachesFact:
    from dataclasses import replace  # noqa: PLC0415  one use

    variables = {**bench.subject.variables, "ENVDOCTOR_HOME": str(bench.home)}
    subject = replace(bench.subject, variables=variables, deep=deep)
    return collect(subject, FactSet([H200])).need(CompileCachesFact)


def test_the_probe_looks_at_stamped_caches_and_when_deep_at_all(tmp_path: Path) -> None:
    bench = warmed(tmp_path)
    assert [one.num_entries for cache in read(bench).caches for one in cache.classes] == [16, 1]
    next(bench.inductor.glob("??/*.so")).write_bytes(b"")
    found = [(one.name, one.num_entries) for cache in read(bench).caches for one in cache.classes]
    assert found == [("valid", 15), ("corrupt", 1), ("valid", 1)]
    other = Bench(tmp_path / "other")
    other.inductor.mkdir()
    (other.inductor / "x.py").write_text("1")
    assert read(other) == CompileCachesFact()
    (cache,) = read(other, deep=True).caches
    assert [(one.name, one.num_entries) for one in cache.classes] == [("unknown", 1)]
