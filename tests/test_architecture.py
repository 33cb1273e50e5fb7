"""Tests that hold the architecture: what may import what, how large things may get."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from envdoctor.check import HEADINGS, is_kebab_case
from envdoctor.checks import BUILTIN_CHECKS
from envdoctor.compatibility import load_table
from envdoctor.facts import SuppressionsFact
from envdoctor.probes.registry import PROBES

ROOT = Path(__file__).parents[1]
MODULES = sorted([*ROOT.glob("envdoctor/**/*.py"), *ROOT.glob("train/**/*.py")])
MODULE_IDS = [str(path.relative_to(ROOT)) for path in MODULES]
RUNNERS_FACTS = {SuppressionsFact}
ALLOWED_TRAIN_IMPORTS = {"train.config", "train.settings", "train.sizes"}


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{name.name}" for name in names)}
            case _:
                pass
    return found


def uses(path: Path, module: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for name in imports_of(path))


@pytest.mark.parametrize("check", BUILTIN_CHECKS, ids=lambda check: check.id)
def test_check_is_explained_and_registered_once(check: object) -> None:
    ids = [item.id for item in BUILTIN_CHECKS]
    (found,) = [item for item in BUILTIN_CHECKS if item is check]
    assert ids.count(found.id) == 1
    assert is_kebab_case(found.id)
    assert found.title.endswith(".")
    sections = found.explanation.split("\n## ")
    assert [f"## {section.splitlines()[0]}" for section in sections[1:]] == list(HEADINGS)
    assert all(len(section.splitlines()) > 1 for section in sections[1:])


@pytest.mark.parametrize("check", BUILTIN_CHECKS, ids=lambda check: check.id)
def test_prerequisites_come_first_and_facts_have_probes(check: object) -> None:
    (found,) = [item for item in BUILTIN_CHECKS if item is check]
    ids = [item.id for item in BUILTIN_CHECKS]
    before = ids[: ids.index(found.id)]
    assert {*found.requires, *found.follows_from} <= set(before)
    assert {kind for _, kind in found.reads} <= {kind for kind, _ in PROBES} | RUNNERS_FACTS


@pytest.mark.parametrize("path", MODULES, ids=MODULE_IDS)
def test_module_is_small_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    assert ast.get_docstring(ast.parse(text))
    assert path.stem not in {"utils", "common", "helpers", "misc", "core", "base", "manager"}


def test_map_of_the_trainer_says_of_each_module_what_it_says_itself() -> None:
    lines = re.findall(
        r"^- \[(\w+)\]\(\1\.py\): (.+)$", (ROOT / "train/README.md").read_text(), re.MULTILINE
    )
    modules = [path for path in (ROOT / "train").glob("*.py") if not path.stem.startswith("_")]
    titles = {
        path.stem: (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        for path in modules
    }
    assert dict(lines) == titles
    assert len(lines) == len(titles)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "train").glob("**/*.py")), ids=lambda path: path.stem
)
def test_letters_of_tensor_names_are_explained(path: Path) -> None:
    tree = ast.parse(path.read_text())
    _, _, legend = (ast.get_docstring(tree) or "").partition("Shape suffix")
    explained = set(re.findall(r"\b[A-Z]\b", legend.partition("\n\n")[0]))
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    suffixes = [re.fullmatch(r"_?[a-z]\w*_([A-Z0-9]+)", name) for name in names]
    letters = {letter for found in suffixes if found for letter in found[1] if letter.isalpha()}
    assert letters <= explained


@pytest.mark.parametrize("path", MODULES, ids=MODULE_IDS)
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = node.body[0].lineno
            if isinstance(node.body[0], ast.Expr) and len(node.body) > 1:
                start = node.body[1].lineno  # a docstring is not code
            length = (node.end_lineno or start) - start + 1
            assert length <= 40, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", MODULES, ids=MODULE_IDS)
def test_imports_point_one_way(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = imports_of(path)
    if name.startswith("train/"):
        assert not uses(path, "envdoctor")
    elif name.startswith("envdoctor/probe_scripts/"):
        assert not uses(path, "envdoctor"), "it runs where envdoctor is not installed"
        assert not uses(path, "train")
    else:
        assert not uses(path, "torch")
        assert not uses(path, "envdoctor.probe_scripts")
        from_train = {item for item in found if item.startswith("train.")}
        assert all(any(item.startswith(ok) for ok in ALLOWED_TRAIN_IMPORTS) for item in from_train)
    if name.startswith("envdoctor/checks/"):
        assert not {"os", "subprocess", "sys"} & found
        assert not any(item in found for item in ("envdoctor.probes.files", "envdoctor.shell"))
    if name.startswith("envdoctor/probes/"):
        assert not uses(path, "envdoctor.verdict")
        assert not uses(path, "envdoctor.checks")
    if name.startswith("envdoctor/") and name != "envdoctor/shell.py":
        assert "subprocess" not in found
    if name == "envdoctor/errors.py":
        assert not uses(path, "envdoctor")


@pytest.mark.parametrize("path", MODULES, ids=MODULE_IDS)
def test_nothing_prints(path: Path) -> None:
    calls = [
        node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ]
    assert not any(isinstance(call, ast.Name) and call.id == "print" for call in calls)


@pytest.mark.parametrize("table", sorted((ROOT / "envdoctor/tables").glob("*.toml")), ids=str)
def test_every_table_row_has_source_and_date(table: Path) -> None:
    rows = [row for group in load_table(table.stem).values() for row in group]
    assert rows
    assert all(row["source"] and row["read"].year >= 2025 for row in rows)


@pytest.mark.parametrize("arguments", ["--help", "check --prefix .", "explain"])
def test_command_line_loads_nothing_heavy(arguments: str) -> None:
    script = (
        "import sys\n"
        "from envdoctor.__main__ import main\n"
        f"sys.argv = ['envdoctor', *{arguments.split()!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'rich', 'pydantic', 'pynvml'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
