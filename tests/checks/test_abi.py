from __future__ import annotations

import dataclasses

import pytest

from envdoctor.facts import (
    Distribution,
    DistributionsFact,
    Extension,
    ExtensionsFact,
    InterpreterFact,
)
from envdoctor.verdict import Ok, Outcome, Problem, Skipped
from tests.checks.test_agreement import outcomes

PYTHON = InterpreterFact(
    prefix="/env", python=None, version="3.11.7", is_venv=True, site_packages=("/env",)
)
NO_EXTENSIONS = ExtensionsFact(extensions=())


def judge(
    dists: list[Distribution], *extensions: tuple[str, str], owner: str = ""
) -> list[Outcome]:
    found = tuple(Extension(path=path, tag=tag, owner=owner) for path, tag in extensions)
    return outcomes(
        "package-for-another-python",
        PYTHON,
        DistributionsFact(distributions=tuple(dists)),
        ExtensionsFact(extensions=found),
    )


def wheel(name: str, *tags: str) -> Distribution:
    return Distribution(name=name, version="1.0", path=f"/env/{name}-1.0.dist-info", tags=tags)


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(("cp311-cp311-manylinux_2_28_x86_64",), id="this-python"),
        pytest.param(("cp39-abi3-manylinux_2_28_x86_64",), id="older-abi3"),
        pytest.param(("cp310-none-any",), id="older-pure"),
        pytest.param(("py3-none-any",), id="pure"),
        pytest.param(("py2-none-any", "py3-none-any"), id="two-pure"),
        pytest.param(("py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64",), id="any-python"),
        pytest.param(
            ("cp310-cp310-linux_x86_64", "cp311-cp311-linux_x86_64"), id="one-of-two-fits"
        ),
        pytest.param((), id="no-WHEEL"),
        pytest.param(("what is this",), id="no-tag"),
        pytest.param(("cp311-cp311-macosx_11_0_universal2",), id="platform-that-is-not-known"),
    ],
)
def test_wheel_that_fits(tags: tuple[str, ...]) -> None:
    assert isinstance(judge([wheel("numpy", *tags)])[0], Ok)


@pytest.mark.parametrize(
    "tag",
    [
        pytest.param("cp310-cp310-manylinux_2_28_x86_64", id="older"),
        pytest.param("cp312-cp312-manylinux_2_28_x86_64", id="newer"),
        pytest.param("cp312-abi3-manylinux_2_28_x86_64", id="newer-abi3"),
        pytest.param("cp311-cp311-manylinux_2_28_aarch64", id="another-machine"),
        pytest.param("py3-none-musllinux_1_2_aarch64", id="pure-for-another-machine"),
    ],
)
def test_wheel_for_another_python_or_machine(tag: str) -> None:
    (found,) = judge([wheel("numpy", tag), wheel("six", "py3-none-any")])
    assert isinstance(found, Problem)
    assert (found.culprit, found.remedy.kind) == ("numpy", "install-matching-wheel")
    assert f"ABI tag {tag}" in found.message


def test_packages_copied_from_another_python_are_one_finding() -> None:
    names = ["numpy", "pandas", "torch", "scipy", "yaml"]
    (found,) = judge([wheel(name, "cp310-cp310-linux_x86_64") for name in names])
    assert isinstance(found, Problem)
    assert (found.culprit, found.remedy.kind) == ("/env", "recreate-venv")
    assert "5 packages" in found.message


def test_packages_copied_from_another_machine_are_told_as_such() -> None:
    tag = "py3-none-manylinux2014_aarch64"
    (found,) = judge([wheel(name, tag) for name in ("torch", "triton", "nvidia-nccl-cu13")])
    assert isinstance(found, Problem)
    assert (found.culprit, found.remedy.kind) == ("/env", "recreate-venv")
    assert "not for this machine (x86_64)" in found.message


@pytest.mark.parametrize(
    ("others", "culprits"),
    [
        pytest.param([], ["/env"], id="none-fits"),
        pytest.param(
            [wheel("numpy", "cp311-cp311-linux_x86_64")], ["torch", "triton"], id="another-fits"
        ),
    ],
)
def test_two_packages_are_an_environment_if_no_other_is_compiled(
    others: list[Distribution], culprits: list[str]
) -> None:
    tag = "cp312-cp312-linux_x86_64"
    pure = wheel("six", "py3-none-any")
    found = judge([wheel("torch", tag), wheel("triton", tag), pure, *others])
    assert [item.culprit for item in found if isinstance(item, Problem)] == culprits


TORCH_312 = "/env/torch/_C.cpython-312-x86_64-linux-gnu.so"
TORCH_311 = "/env/torch/_C.cpython-311-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("extensions", "culprit"),
    [
        pytest.param([(TORCH_312, "cpython-312")], "torch", id="in-a-package"),
        pytest.param(
            [("/env/flash_attn.cpython-310-x86_64-linux-gnu.so", "cpython-310")],
            "flash-attn",
            id="at-the-top",
        ),
        pytest.param(
            [("/env/odd/_x.cpython-310-x86_64-linux-gnu.so", "cpython-310")],
            "/env/odd/_x.cpython-310-x86_64-linux-gnu.so",
            id="of-nobody",
        ),
        pytest.param(
            [(TORCH_312, "cpython-312"), (TORCH_311, "cpython-311")], "", id="one-for-each"
        ),
        pytest.param([(TORCH_311, "cpython-311")], "", id="for-this-python"),
        pytest.param([("/env/a/b.abi3.so", "abi3")], "", id="abi3"),
        pytest.param([("/env/a/b.so", "")], "", id="no-tag"),
    ],
)
def test_extension_for_another_python(extensions: list[tuple[str, str]], culprit: str) -> None:
    (found,) = judge([wheel("torch"), wheel("flash-attn")], *extensions)
    assert (found.culprit if isinstance(found, Problem) else "") == culprit


def test_python_whose_version_nobody_knows() -> None:
    python = dataclasses.replace(PYTHON, version="")
    torch = DistributionsFact(distributions=(wheel("torch", "cp312-cp312-linux_x86_64"),))
    (found,) = outcomes("package-for-another-python", python, torch, NO_EXTENSIONS)
    assert isinstance(found, Skipped)


def test_extensions_of_a_wheel_that_does_not_fit_are_not_named_again() -> None:
    found = judge([wheel("torch", "cp312-cp312-linux_x86_64")], (TORCH_312, "cpython-312"))
    assert len(found) == 1


MXFP8 = "/env/torchao/_C_mxfp8.cpython-310-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("tag", "recorded", "culprit"),
    [
        pytest.param("cp310-abi3-linux_x86_64", True, "", id="shipped-for-any-python"),
        pytest.param("py3-none-linux_x86_64", True, "", id="shipped-without-an-abi"),
        pytest.param("cp310-abi3-linux_x86_64", False, "torchao", id="put-there-by-somebody"),
        pytest.param("cp311-cp311-linux_x86_64", True, "torchao", id="shipped-for-one-python"),
    ],
)
def test_extension_that_is_loaded_by_its_path(tag: str, recorded: bool, culprit: str) -> None:
    owner = "torchao" if recorded else ""
    (found,) = judge([wheel("torchao", tag)], (MXFP8, "cpython-310"), owner=owner)
    assert (found.culprit if isinstance(found, Problem) else "") == culprit
