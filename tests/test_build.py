"""Builds of tiny wheels through the real uv, and one of the cpu profile from its real sources."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from envdoctor import build, profile, receipt, settings
from envdoctor.errors import (
    BusyError,
    EnvdoctorError,
    ExitCode,
    IntegrityError,
    NoSolutionError,
    SourceError,
    SpaceError,
    ToolError,
    UsageError,
)
from envdoctor.verify import UnfitEnvironmentError
from tests.tiny_wheels import make_index, make_torch, make_wheel
from tests.workbench import Bench, wait_for


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_build_puts_a_verified_environment_in_place(bench: Bench) -> None:
    built = bench.build(bench.write())
    assert built.is_new
    assert bench.current.resolve() == built.path
    assert bench.torch_of_current() == "9.9.0+cpu"
    assert not bench.left_over()


def test_receipt_says_what_was_asked_what_came_and_from_where(bench: Bench) -> None:
    built = bench.build(bench.write())
    written = receipt.read(bench.envs / f"receipts/{built.path.name}.json")
    assert written is not None
    assert msgspec.json.encode(written) == msgspec.json.encode(built.receipt)
    assert [(wheel.name, wheel.version) for wheel in written.packages] == [
        ("alpha", "1.0"),
        ("beta", "1.0"),
        ("torch", "9.9.0+cpu"),
    ]
    assert all(len(wheel.sha256) == 64 and wheel.size for wheel in written.packages)
    assert {wheel.source for wheel in written.packages} == {str(bench.wheels)}
    assert written.wanted() == profile.load_profile(bench.write())
    assert set(written.seconds) >= {"prepare", "resolve", "install", "verify", "import"}
    assert written.report["environment"]["prefix"] == str(built.path)
    assert written.report["summary"]["exit_code"] == 0
    assert written.uv is not None
    assert (written.previous, written.uv.version[:3]) == (None, "0.1")


def test_second_build_finds_the_first(bench: Bench) -> None:
    first = bench.build(bench.write())
    second = bench.build(bench.write())
    assert (second.is_new, second.path) == (False, first.path)
    assert "built already" in bench.notes


def test_receipt_follows_a_profile_that_asks_for_the_same_packages(bench: Bench) -> None:
    first = bench.build(bench.write())
    second = bench.build(bench.write(more='[env]\nset = { A = "1" }'))
    written = receipt.read(bench.envs / f"receipts/{first.path.name}.json")
    assert (second.is_new, second.path) == (False, first.path)
    assert written is not None
    assert (wanted := written.wanted()) is not None
    assert wanted.env.set == {"A": "1"}


def test_home_may_have_blanks_and_umlauts(tmp_path: Path) -> None:
    odd = Bench(tmp_path / "my d\u00e4ta 'x'")
    built = odd.build(odd.write())
    assert odd.torch_of_current() == "9.9.0+cpu"
    assert not odd.build(odd.write()).is_new
    assert built.path.exists()


def test_force_builds_anew_beside_the_good_one(bench: Bench) -> None:
    first = bench.build(bench.write())
    second = bench.build(bench.write(), force=True)
    assert second.path.name == f"{first.path.name}-2"
    assert second.receipt.id == first.receipt.id
    assert bench.current.resolve() == second.path
    assert (bench.envs / "previous").resolve() == first.path


def test_damaged_environment_is_built_anew(bench: Bench) -> None:
    first = bench.build(bench.write())
    next(first.path.glob("lib/python*/site-packages/torch/part_7.py")).unlink()
    second = bench.build(bench.write())
    assert second.is_new
    assert "part_7.py" in bench.notes or "torch" in bench.notes
    assert bench.torch_of_current() == "9.9.0+cpu"


def test_file_without_owner_is_not_left_in_a_good_environment(bench: Bench) -> None:
    first = bench.build(bench.write())
    (next(first.path.glob("lib/python*/site-packages")) / "alpha_stray.py").touch()
    assert bench.build(bench.write()).is_new
    assert "1 files belong to no package" in bench.notes


def test_file_that_an_import_writes_is_sealed_and_no_damage(bench: Bench) -> None:
    body = "open(__file__ + '.cache', 'w').close()\n"
    make_wheel(bench.wheels, "alpha", "1.0", files={"alpha.py": body})
    path = bench.write(more='[check]\nimports = ["torch", "alpha"]')
    bench.build(path)
    assert not bench.build(path).is_new


def test_equal_builds_have_equal_trees(bench: Bench, tmp_path: Path) -> None:
    first = bench.build(bench.write())
    other_home = Bench(tmp_path / "other")
    second = other_home.build(other_home.write(more='[build]\nlink_mode = "hardlink"'))
    one, two = first.path, second.path
    assert one.name == two.name
    assert first.receipt.tree == second.receipt.tree is not None

    def tree(root: Path) -> dict[str, bytes]:
        files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(root)): path.read_bytes() for path in files}

    assert tree(one) == tree(two)


def test_old_generations_go_and_two_stay(bench: Bench) -> None:
    paths = [bench.build(bench.write(), force=True).path for _ in range(4)]
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert not bench.left_over()


def test_failed_build_leaves_the_current_environment(bench: Bench) -> None:
    first = bench.build(bench.write())
    with pytest.raises(NoSolutionError):
        bench.build(bench.write(require="alpha==2.0"))
    assert bench.current.resolve() == first.path
    assert bench.torch_of_current() == "9.9.0+cpu"
    assert not bench.left_over()
    assert "log: " in bench.notes


def test_environment_runs_after_its_home_was_reached_by_another_path(bench: Bench) -> None:
    built = bench.build(bench.write())
    link = bench.folder / "link"
    link.symlink_to(bench.home)
    script = link / "envs/tiny/current/bin/python"
    code = "import sys; print(sys.prefix)"
    done = subprocess.run([script, "-c", code], check=True, capture_output=True, text=True)
    assert built.path.exists()
    assert "tiny" in done.stdout


DEAD_INDEX = """
[[index]]
name = "near"
url = "http://user:hunter2@127.0.0.1:9/simple"
packages = ["torch"]
"""

FAILURES = [
    pytest.param({"require": "alpha==2.0"}, NoSolutionError, ["alpha==2.0"], id="no-version"),
    pytest.param({"torch": "9.8.0"}, NoSolutionError, ["torch==9.8.0+cpu"], id="no-such-torch"),
    pytest.param({"variant": "cu128"}, NoSolutionError, ["cu128"], id="cpu-wheel-for-cuda"),
    pytest.param({"wheels": False}, SourceError, ["PyPI", "not known to be cpu"], id="no-source"),
    pytest.param(
        {"wheels": False, "more": DEAD_INDEX},
        SourceError,
        ["127.0.0.1:9 did not answer (connection refused)"],
        id="dead-index",
    ),
    pytest.param(
        {"more": "[build]\ndisk_gb = 1e6"}, SpaceError, ["needs 2000000.0 GB"], id="space"
    ),
    pytest.param({"more": '[python]\nrequires = ">=3.99"'}, ToolError, [">=3.99"], id="python"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "words"), FAILURES)
def test_failure_says_what_and_why(
    bench: Bench, change: dict[str, str], kind: type[EnvdoctorError], words: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        bench.build(bench.write(**change))  # type: ignore[arg-type]
    assert all(word in caught.value.message for word in words), caught.value.message
    assert caught.value.hint
    assert not bench.left_over()


def test_missing_wheel_folder_is_a_usage_error(bench: Bench) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        bench.build(bench.write(), wheels=(bench.folder / "nowhere",))


def test_missing_python_and_uv_are_tool_errors(bench: Bench) -> None:
    with pytest.raises(ToolError, match="looked in"):
        bench.build(bench.write(), python="3.99")
    with pytest.raises(ToolError, match="looked in"):
        bench.build(bench.write(), uv=bench.folder / "uv")


def test_program_that_is_not_uv_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolError, match="is not uv"):
        bench.build(bench.write(), uv=Path("/bin/true"))


def test_unwritable_home_is_a_space_error(bench: Bench) -> None:
    (bench.folder / "home").write_text("a file")
    with pytest.raises(SpaceError, match="cannot make folders"):
        bench.build(bench.write())


def test_forbidden_package_of_a_dependency_is_refused(bench: Bench) -> None:
    make_wheel(bench.wheels, "gamma", "1.0", requires=["vllm-flash"])
    make_wheel(bench.wheels, "vllm-flash", "1.0")
    with pytest.raises(NoSolutionError, match=r"vllm-flash \(vllm\*\)"):
        bench.build(bench.write(require="gamma==1.0"))


def test_constraint_of_pip_that_excludes_torch_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraint = bench.folder / "constraints.txt"
    constraint.write_text("torch<9\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraint))
    text = Path(bench.write()).read_text().replace('pip_config = "ignore"', "")
    (bench.folder / "tiny.toml").write_text(text)
    with pytest.raises(NoSolutionError, match=f"constraints hold here: {constraint}") as caught:
        bench.build(str(bench.folder / "tiny.toml"))
    assert caught.value.exit_code == ExitCode.NO_SOLUTION


def test_missing_constraint_file_of_pip_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONSTRAINT", "/no/such/constraints.txt")
    text = Path(bench.write()).read_text().replace('pip_config = "ignore"', "")
    (bench.folder / "tiny.toml").write_text(text)
    with pytest.raises(UsageError, match="which does not exist"):
        bench.build(str(bench.folder / "tiny.toml"))


def test_excluded_package_is_not_installed(bench: Bench) -> None:
    text = Path(bench.write()).read_text().replace("forbid =", 'exclude = ["beta"]\nforbid =')
    path = bench.folder / "tiny.toml"
    path.write_text(text)
    built = bench.build(str(path))
    assert [wheel.name for wheel in built.receipt.packages] == ["alpha", "torch"]


def test_wrong_hash_of_an_index_is_an_integrity_error(bench: Bench) -> None:
    wheels = [make_torch(bench.folder / "plain", "9.9.2"), *bench.wheels.glob("[ab]*.whl")]
    more = f"""
[[index]]
name = "main"
default = true
url = "{make_index(bench.folder / "index", wheels, sha256="0" * 64)}"
same_variant = {{ torch = ["9.9.2"] }}
"""
    with pytest.raises(IntegrityError) as caught:
        bench.build(bench.write(wheels=False, more=more, torch="9.9.2"))
    assert caught.value.exit_code == ExitCode.INTEGRITY
    assert f"wanted {'0' * 64}" in caught.value.message


def test_wheel_of_another_variant_is_not_put_in_place(bench: Bench) -> None:
    shutil.rmtree(bench.wheels)
    wrong = make_torch(bench.folder / "cuda", "9.9.0", cuda="12.8")
    bench.wheels.mkdir()
    wrong.rename(bench.wheels / "torch-9.9.0+cpu-py3-none-any.whl")
    make_wheel(bench.wheels, "alpha", "1.0")
    with pytest.raises(EnvdoctorError):
        bench.build(bench.write())
    assert not bench.current.exists()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("raise RuntimeError('no operator')", "no operator", id="raises"),
        pytest.param("import os; os._exit(11)", "ended with 11", id="crashes"),
        pytest.param("import time; time.sleep(30)", "did not end within", id="hangs"),
        pytest.param("import json, sys; sys.modules['alpha'] = json", "from outside", id="foreign"),
        pytest.param("print('hello'); raise SystemExit(0)", "SystemExit", id="exits"),
        pytest.param(
            "import os, torch.part_3 as m; os.remove(m.__file__)",
            "imported: .*t_3.py",
            id="deletes",
        ),
        pytest.param(
            "import torch.part_3 as m; open(m.__file__, 'a').write('#')",
            "imported: .*part_3.py",
            id="changes",
        ),
    ],
)
def test_module_that_does_not_import_is_not_put_in_place(
    bench: Bench, body: str, expected: str
) -> None:
    make_wheel(bench.wheels, "alpha", "1.0", files={"alpha.py": body + "\n"})
    more = '[check]\nimports = ["torch", "alpha"]\ntimeout_seconds = 2'
    with pytest.raises(UnfitEnvironmentError, match=expected):
        bench.build(bench.write(more=more))
    assert not bench.current.exists()


def test_named_index_is_preferred_and_serves_torch_only(bench: Bench) -> None:
    """The layout of the PyTorch index: tagged wheels of torch, and old versions of others."""
    shutil.rmtree(bench.wheels)
    torch = make_torch(bench.folder / "t", "9.9.0+cu128", cuda="12.8")
    plain = make_torch(bench.folder / "p", "9.9.0", cuda="12.8")
    old, new = (make_wheel(bench.folder / v, "alpha", v) for v in ("0.1", "1.0"))
    near = make_index(bench.folder / "near", [torch, old])
    main = make_index(bench.folder / "main", [plain, new])
    more = f"""
[[index]]
name = "near"
url = "{near}"
packages = ["torch"]
[[index]]
name = "main"
default = true
url = "{main}"
same_variant = {{ torch = ["9.9.0"] }}
"""
    built = bench.build(bench.write(variant="cu128", wheels=False, require="alpha", more=more))
    found = {wheel.name: wheel for wheel in built.receipt.packages}
    assert (found["torch"].version, found["alpha"].version) == ("9.9.0+cu128", "1.0")
    assert built.receipt.source.startswith("near index")

    shutil.rmtree(bench.folder / "near")
    bench.events.clear()
    again = bench.build(bench.write(variant="cu128", wheels=False, require="alpha", more=more))
    assert again.receipt.packages[-1].version == "9.9.0"
    assert "left out near index" in bench.notes
    assert "torch 9.9.0 comes from" in bench.notes


def test_credentials_reach_neither_receipt_nor_log_nor_messages(bench: Bench) -> None:
    built = bench.build(bench.write(more=DEAD_INDEX))
    texts = [path.read_text() for path in bench.home.glob("logs/*")]
    texts += [path.read_text() for path in bench.envs.glob("receipts/*")]
    texts += [event.text for event in bench.events]
    assert built.is_new
    assert not [text for text in texts if "hunter2" in text]
    assert any("****@127.0.0.1:9" in text for text in texts)


def test_variables_of_the_caller_do_not_reach_the_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("UV_INDEX", "http://127.0.0.1:9/")
    monkeypatch.setenv("UV_TORCH_BACKEND", "auto")
    built = bench.build(bench.write())
    assert {"PYTHONPATH", "UV_INDEX", "UV_TORCH_BACKEND"} <= set(built.receipt.variables_dropped)


def test_second_build_at_once_waits_or_is_told_who_holds_the_lock(bench: Bench) -> None:
    make_wheel(bench.wheels, "alpha", "1.0", files={"alpha.py": "import time; time.sleep(3)\n"})
    path = bench.write(more='[check]\nimports = ["alpha"]')
    first = bench.start(path)
    wait_for(first, "stage import")
    with pytest.raises(BusyError, match=f"pid {first.pid}"):
        bench.build(path, wait=False)
    second = bench.build(path)
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert f"waiting: another build of profile tiny runs: host {socket.gethostname()}" in (
        bench.notes
    )
    assert not second.is_new


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_leaves_things_clean(bench: Bench, number: signal.Signals) -> None:
    first = bench.build(bench.write())
    make_wheel(bench.wheels, "beta", "2.0", files={"beta.py": "import time; time.sleep(60)\n"})
    process = bench.start(bench.write(more='[check]\nimports = ["beta"]'))
    wait_for(process, "stage import")
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "stopped in stage import; run the same command to go on" in output
    assert f"current is still {first.path.name}" in output
    assert not bench.left_over()
    assert bench.current.resolve() == first.path


def test_cpu_profile_builds_from_its_real_sources(tmp_path: Path) -> None:
    """The one build that needs a network: some 350 MB, about half a minute."""
    place = settings.load({**os.environ, "ENVDOCTOR_HOME": str(tmp_path)})
    request = build.BuildRequest(profile=profile.load_profile("cpu"))
    try:
        built = build.build(request, settings=place, talk=lambda event: None)
        code = "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda]))"
        argv = [str(built.path / "bin/python"), "-I", "-B", "-c", code]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        assert json.loads(done.stdout) == ["2.13.0+cpu", None]
        assert {"llm", "llama-cpp-python"}.isdisjoint(w.name for w in built.receipt.packages)
        assert built.receipt.report["summary"]["errors"] == 0
    finally:
        shutil.rmtree(tmp_path)
