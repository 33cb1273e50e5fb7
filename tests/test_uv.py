"""Finding uv, what reaches it, and what its failures mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import settings, uv, uv_failures
from envdoctor.errors import EnvdoctorError, ExitCode, ToolError
from envdoctor.pip_config import PipConfig


def test_uv_of_this_environment_is_found_with_its_hash() -> None:
    found = uv.find(None, settings.load({}))
    assert found.path.name == "uv"
    assert len(found.sha256) == 64


def test_named_uv_wins_and_must_exist(tmp_path: Path) -> None:
    wanted = settings.load({"ENVDOCTOR_UV": str(tmp_path / "uv")})
    with pytest.raises(ToolError, match=str(tmp_path / "uv")):
        uv.find(None, wanted)
    found = uv.find(None, settings.load({})).path
    assert uv.find(found, wanted).path == found


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("echo uv 0.4.30", "is uv 0.4.30, wanted 0.13 or newer", id="old"),
        pytest.param("echo uv", "is not uv", id="no-version"),
        pytest.param("echo broken >&2; exit 3", "is not uv: broken", id="fails"),
    ],
)
def test_unsuitable_uv_is_refused(tmp_path: Path, script: str, expected: str) -> None:
    path = tmp_path / "uv"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    with pytest.raises(ToolError, match=expected) as caught:
        uv.find(path, settings.load({}))
    assert caught.value.exit_code == ExitCode.TOOL


def test_variables_that_steer_are_dropped_and_pip_is_heard() -> None:
    here = settings.load({"UV_INDEX": "x", "PYTHONHOME": "x", "VIRTUAL_ENV": "x", "HOME": "/h"})
    pip = PipConfig(cert="/c.pem", proxy="http://p", trusted_hosts=("a", "b"), timeout="7")
    found = uv.variables(here, cache=Path("/cache"), pip=pip)
    assert "UV_INDEX" not in found
    assert not {"PYTHONHOME", "VIRTUAL_ENV"} & set(found)
    assert {
        key: found[key] for key in ("HOME", "SSL_CERT_FILE", "HTTPS_PROXY", "UV_HTTP_TIMEOUT")
    } == {
        "HOME": "/h",
        "SSL_CERT_FILE": "/c.pem",
        "HTTPS_PROXY": "http://p",
        "UV_HTTP_TIMEOUT": "7",
    }
    assert found["UV_INSECURE_HOST"] == "a b"
    assert uv.foreign(here.variables) == ("PYTHONHOME", "UV_INDEX", "VIRTUAL_ENV")


# Words of uv 0.13.9.
CONFLICT = """\
error: No solution found when resolving dependencies
  cause: Because there is no version of torch==9.9.2 and you require torch==9.9.2, we can conclude
         that your requirements are unsatisfiable.

hint: `torch` was filtered by `exclude-newer` to only include packages uploaded before 2026.
"""
CHAIN = """\
error: No solution found when resolving dependencies
  cause: Because only gamma<=1 is available and gamma==1.0 depends on beta>=2, we can conclude that
         all versions of gamma depend on beta>=2. And because you require gamma and beta<2, we can
         conclude that your requirements are unsatisfiable.
"""
HASH = """\
error: Failed to download `numpy==2.4.6`
  cause: Hash mismatch for `numpy==2.4.6`

         Expected:
           sha256:aaa

         Computed:
           sha256:bbb
"""
DNS = """\
error: Failed to fetch: https://u:secret@index.invalid/simple/torch/
  cause: Request failed after 3 retries in 10.7s
  cause: error sending request for url (https://u:secret@index.invalid/simple/torch/)
  cause: failed to lookup address information: Name or service not known
"""
FULL = """\
error: Failed to install: torch-2.10.0-py3-none-any.whl (torch==2.10.0)
  cause: failed to copy file from a to b: No space left on device (os error 28)
"""


@pytest.mark.parametrize(
    ("stderr", "code", "words"),
    [
        pytest.param(
            CONFLICT,
            ExitCode.NO_SOLUTION,
            ["there is no version of torch==9.9.2 and you require torch==9.9.2"],
            id="conflict",
        ),
        pytest.param(
            CHAIN,
            ExitCode.NO_SOLUTION,
            ["only gamma<=1 is available", "all versions of gamma", "you require gamma and beta<2"],
            id="chain",
        ),
        pytest.param(
            HASH,
            ExitCode.INTEGRITY,
            ["numpy==2.4.6: the file has sha256 bbb, wanted aaa"],
            id="hash",
        ),
        pytest.param(DNS, ExitCode.SOURCE, ["index.invalid", "failed to lookup address"], id="dns"),
        pytest.param(FULL, ExitCode.SPACE, ["torch==2.10.0", "No space left"], id="full"),
        pytest.param(
            "error: invalid peer certificate: UnknownIssuer",
            ExitCode.SOURCE,
            ["certificate"],
            id="tls",
        ),
        pytest.param(
            "error: Failed to install: a-1-py3-none-any.whl (a==1)\n  cause: Wheel version does "
            "not match filename (2 != 1), which indicates a malformed wheel.",
            ExitCode.INTEGRITY,
            ["a==1", "does not match filename"],
            id="malformed",
        ),
        pytest.param("error: Quota exceeded", ExitCode.SPACE, ["Quota"], id="quota"),
        pytest.param("thread 'main' panicked", ExitCode.INTERNAL, ["uv failed: th"], id="panic"),
        pytest.param("", ExitCode.INTERNAL, ["it said nothing"], id="silence"),
    ],
)
def test_failure_is_told_by_its_words(stderr: str, code: ExitCode, words: list[str]) -> None:
    error = uv_failures.meaning(stderr)
    assert error.exit_code == code
    assert all(word in error.message for word in words), error.message
    assert "\n" not in error.message
    assert "secret" not in error.message


def test_limit_without_dates_is_told_from_one_that_bites() -> None:
    assert uv_failures.is_cutoff_without_dates(CONFLICT)
    published = CONFLICT + "The requested version, v1, was published at 2027-01-01."
    assert not uv_failures.is_cutoff_without_dates(published)
    assert not uv_failures.is_cutoff_without_dates(HASH)


@given(st.text())
def test_any_words_are_one_line_of_error(stderr: str) -> None:
    error = uv_failures.meaning(stderr)
    assert isinstance(error, EnvdoctorError)
    assert "\n" not in error.message
