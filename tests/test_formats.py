from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.formats import docs
from envdoctor.formats.github import workflow_commands
from envdoctor.formats.pages import page_data, page_markdown, sections
from envdoctor.formats.printable import encodable_data, one_line
from envdoctor.formats.sarif import to_sarif
from envdoctor.render import USUAL_SUSPECTS
from envdoctor.report import Finding, Report
from envdoctor.schemas import report as report_schema
from envdoctor.verdict import Evidence, Problem, Remedy
from tests.golden_files import FOLDER, broken, environment, forms, healthy
from tests.sarif_types import Log

ANY_TEXT = st.text(st.characters())  # lone surrogates as well: names of files may hold any bytes


def report_of(culprit: str, message: str = "m", subject: str = "", prefix: str = "/env") -> Report:
    problem = Problem(
        culprit=culprit,
        message=message,
        evidence=(Evidence(subject=subject),),
        remedy=Remedy(kind="reboot", text="Reboot.", commands=("reboot",)),
    )
    return Report(
        environment=environment(prefix=prefix),
        findings=(Finding(check="stray-package", outcome=problem),),
    )


@pytest.mark.parametrize("name", sorted(forms()))
def test_form_is_as_recorded(name: str) -> None:
    assert forms()[name].rstrip("\n") + "\n" == (FOLDER / name).read_text()


def test_every_golden_file_is_compared() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(forms())


@pytest.mark.parametrize("report", [broken(), healthy()], ids=["broken", "healthy"])
def test_json_report_fits_its_types_and_loses_nothing(report: Report) -> None:
    data = json.loads(json.dumps(report.to_dict()))
    document = msgspec.convert(data, report_schema.ReportDocument)
    assert msgspec.to_builtins(document) == data


def test_published_schema_is_that_of_the_types() -> None:
    published = Path(report_schema.__file__).with_name("report-1.schema.json").read_text()
    assert published == report_schema.schema_text()


@pytest.mark.parametrize("report", [broken(), healthy()], ids=["broken", "healthy"])
def test_sarif_fits_its_types(report: Report) -> None:
    log = msgspec.convert(json.loads(json.dumps(to_sarif(report, BUILTIN_CHECKS))), Log)
    (run,) = log.runs
    for result in run.results:
        assert run.tool.driver.rules[result.rule_index].id == result.rule_id
    problems = [item for item in report.findings if isinstance(item.outcome, Problem)]
    assert len(run.results) == len(problems)
    assert sum(bool(result.suppressions) for result in run.results) == sum(
        bool(item.suppressed) for item in problems
    )


@pytest.mark.parametrize(
    ("culprit", "subject", "uri", "base"),
    [
        pytest.param("torch", "/env/lib/a b.so", "lib/a%20b.so", "ENVIRONMENT", id="inside"),
        pytest.param("torch", "/environment/a.so", "file:///environment/a.so", None, id="beside"),
        pytest.param("/usr/lib/x.so", "/env/y", "file:///usr/lib/x.so", None, id="culprit-first"),
        pytest.param("LD_PRELOAD", "", "./", "ENVIRONMENT", id="no-file"),
        pytest.param("torch", "/env/na\udcefve", "na%EFve", "ENVIRONMENT", id="not-utf-8"),
    ],
)
def test_sarif_location(culprit: str, subject: str, uri: str, base: str | None) -> None:
    log = to_sarif(report_of(culprit, subject=subject), BUILTIN_CHECKS)
    found = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert (found["uri"], found.get("uriBaseId")) == (uri, base)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
@example("", "", "\udd00\udc80")
def test_sarif_of_any_text_is_valid(culprit: str, message: str, path: str) -> None:
    report = report_of(culprit, message, "/" + path.replace("\0", ""), prefix="/e")
    text = json.dumps(to_sarif(report, BUILTIN_CHECKS), ensure_ascii=False)
    msgspec.json.decode(text.encode(), type=Log)


@given(ANY_TEXT, ANY_TEXT)
def test_annotation_of_any_text_is_one_command_on_one_line(culprit: str, message: str) -> None:
    first, closing = workflow_commands(report_of(culprit, message))
    assert first.isprintable()
    assert first.splitlines() == [first]
    head, title, rest = first.split(" ", 1)[0], *first.split("title=", 1)[1].split("::", 1)
    assert head == "::error"
    assert not {":", ",", "\n"} & set(title)
    assert "\n" not in rest
    assert not closing.startswith("::")


@given(ANY_TEXT)
def test_one_line_is_printable_and_keeps_plain_text(text: str) -> None:
    shown = one_line(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert "\x1b" not in shown
    if text.isascii() and text.isprintable():
        assert shown == text


@given(st.recursive(ANY_TEXT | st.integers() | st.none(), st.lists))
def test_encodable_data_can_be_encoded(value: object) -> None:
    json.dumps(encodable_data(value), ensure_ascii=False).encode()


@pytest.mark.parametrize("check", BUILTIN_CHECKS, ids=lambda check: check.id)
def test_page_has_each_section(check: object) -> None:
    (found,) = [item for item in BUILTIN_CHECKS if item is check]
    page = sections(found)
    assert set(page) == {"what", "why", "remedy", "source"}
    assert all(text and "## " not in text for text in page.values())
    assert json.loads(json.dumps(page_data(found)))["id"] == found.id
    assert page_markdown(found).startswith(f"# {found.id}\n\n{found.title}\n")


def test_table_of_checks_is_fresh() -> None:
    assert docs.main(["--check"]) == 0, "run python -m envdoctor.formats.docs"


def test_usual_suspects_exist() -> None:
    assert set(USUAL_SUSPECTS) <= {check.id for check in BUILTIN_CHECKS}
