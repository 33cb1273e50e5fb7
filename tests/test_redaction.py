from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import FactSet, InterpreterFact, UserFact, VariablesFact
from envdoctor.facts.snapshot import to_data
from envdoctor.redaction import Redactor, redactor_for
from envdoctor.verdict import Problem
from tests.environments import make_cuda_environment
from tests.machines import HEALTHY, problem, variables

if TYPE_CHECKING:
    from pathlib import Path

ALICE = FactSet(
    [
        *HEALTHY,
        UserFact(uid=1000, has_passwd_entry=True, home="/home/alice", home_writable=True),
        variables(USER="alice", HOME="/home/alice", NVIDIA_API_KEY="short", PATH="/home/alice/bin"),
    ]
)
REDACTOR = redactor_for(ALICE, hosts=["gpu7.lab.example"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/env/lib", "~/env/lib"),
        ("/home/alice", "~"),
        ("/home/alicette/env", "/home/USER/env"),
        ("/home/bob/.cache:/Users/carol/x", "/home/USER/.cache:/Users/USER/x"),
        ("owned by alice", "owned by USER"),
        ("malice", "malice"),
        ("on gpu7.lab.example", "on HOST"),
        ("gpu7: Xid 79", "HOST: Xid 79"),
        ("https://bob:hunter2@mirror/simple", "https://****@mirror/simple"),
        ("token hf_abcdefghijklmnopqrstuv", "token <redacted>"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer <redacted>"),
        ("/tmp/torchinductor_alice/x", "/tmp/torchinductor_USER/x"),
        ("nvidia-cudnn-cu12==9.10.2.21", "nvidia-cudnn-cu12==9.10.2.21"),
    ],
)
def test_text(text: str, expected: str) -> None:
    assert REDACTOR.text(text) == expected


def test_variables_that_hold_credentials_lose_their_value() -> None:
    values = REDACTOR.facts(ALICE).need(VariablesFact)
    assert values.get("NVIDIA_API_KEY") == "<redacted>"
    assert values.get("PATH") == "~/bin"
    assert values.get("USER") == "USER"


@pytest.mark.parametrize("user", ["torch", "nvidia", "root", "user", "me"])
def test_names_that_tell_nothing_are_left_in_other_places(user: str) -> None:
    redactor = redactor_for(FactSet([variables(USER=user, HOME=f"/home/{user}")]))
    text = f"{user} is in nvidia-torch user root me"
    assert redactor.text(text) == text
    assert redactor.text(f"/home/{user}/env") == "~/env"


def test_no_name_is_left_in_a_whole_snapshot() -> None:
    text = json.dumps(to_data(REDACTOR.facts(ALICE)))
    assert "alice" not in text
    assert "short" not in text


def test_facts_keep_their_kinds_and_what_could_not_be_read() -> None:
    facts = ALICE.lacking(InterpreterFact, "cannot read /home/alice/env")
    redacted = REDACTOR.facts(facts)
    assert {type(fact) for fact in redacted} == {type(fact) for fact in facts}
    assert redacted.unavailable[InterpreterFact].reason == "cannot read ~/env"


def test_verdicts_are_redacted_as_they_are() -> None:
    found = problem("network-interface-not-found", variables(NCCL_SOCKET_IFNAME="alice0,alice"))
    redacted = REDACTOR.apply(found)
    assert isinstance(redacted, Problem)
    assert redacted.severity is found.severity
    assert "alice0,USER" in redacted.message


@given(st.text(), st.lists(st.text(min_size=1, max_size=8), max_size=3))
def test_any_text_with_any_names(text: str, names: list[str]) -> None:
    redactor = Redactor(homes=tuple(names), users=tuple(names), hosts=tuple(names))
    assert isinstance(redactor.text(text), str)


def test_command_line_redacts_facts_and_reports(tmp_path: Path) -> None:
    home = tmp_path / "home/mallory"
    environment = make_cuda_environment(home / "env")
    for command in (["facts"], ["check", "--format", "json"]):
        done = subprocess.run(
            [sys.executable, "-m", "envdoctor", *command, "--prefix", environment.prefix,
             "--redact"],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(home), "USER": "mallory", "PATH": "/usr/bin"},
        )  # fmt: skip
        assert done.stderr == ""
        assert "mallory" not in done.stdout
        assert "~/env" in done.stdout
