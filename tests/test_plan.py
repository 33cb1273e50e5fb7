"""Plans: profile and sources in, candidates out."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from envdoctor import plan
from envdoctor.pip_config import PipConfig
from envdoctor.plan import Candidate
from envdoctor.profile import IndexSection, Profile, TorchSection
from envdoctor.resolve import compile_options, project_file
from envdoctor.sources import Sources

NEAR = IndexSection(name="near", url="https://near/whl", packages=("torch",))
PYPI = "PyPI, whose plain wheel is the same variant (cu128)"
MAIN = IndexSection(name="main", default=True, same_variant={"torch": ("2.10.0",)})


def profile(version: str = "2.10.0", variant: str = "cu128", **changes: object) -> Profile:
    base = Profile(
        schema=1,
        name="p",
        torch=TorchSection(version=version, variant=variant),
        index=(NEAR, MAIN),
    )
    return msgspec.structs.replace(base, **changes)


def sources_of(made: plan.BuildPlan) -> list[tuple[str, str]]:
    return [(one.source, one.torch) for one in made.candidates]


def test_everything_in_order() -> None:
    made = plan.make(
        profile(),
        Sources(wheels=(Path("/w"),), pip=PipConfig(index_url="https://pip/", find_links=("/l",))),
    )
    assert sources_of(made) == [
        ("wheel folder /w alone", "torch==2.10.0+cu128"),
        ("wheel folder /w alone", "torch==2.10.0"),
        ("wheel folder /w", "torch==2.10.0+cu128"),
        ("near index https://near/whl", "torch==2.10.0+cu128"),
        ("pip's index https://pip/ and find-links /l", "torch==2.10.0+cu128"),
        ("pip's index https://pip/ and find-links /l", "torch==2.10.0"),
        (PYPI, "torch==2.10.0"),
    ]
    assert made.left_out == ()


def test_plain_wheels_are_asked_for_only_where_they_are_the_variant() -> None:
    made = plan.make(profile(version="2.11.0"), Sources())
    assert sources_of(made) == [("near index https://near/whl", "torch==2.11.0+cu128")]
    assert [(one.source, one.reason) for one in made.left_out] == [
        ("pip's configuration", "pip is configured with no source of its own"),
        ("PyPI", 'its torch 2.11.0 is cu130, not cu128; torch.version = "2.10.0" would do'),
    ]


def test_cpu_profile_never_asks_for_a_plain_wheel() -> None:
    made = plan.make(
        profile(variant="cpu", index=(NEAR, replace_variants())),
        Sources(wheels=(Path("/w"),), pip=PipConfig(index_url="https://pip/")),
    )
    assert {one.torch for one in made.candidates} == {"torch==2.10.0+cpu"}


def replace_variants() -> IndexSection:
    return msgspec.structs.replace(MAIN, same_variant={})


def test_dead_index_is_left_out_with_its_reason() -> None:
    made = plan.make(profile(), Sources(dead={NEAR.url: "near did not answer (DNS)"}))
    assert sources_of(made) == [(PYPI, "torch==2.10.0")]
    assert made.left_out[0].source == "near index"
    assert made.left_out[0].reason == "near did not answer (DNS)"


def test_other_packages_come_from_where_pip_takes_them() -> None:
    pip = PipConfig(index_url="https://pip/", extra_index_urls=("https://x/",), find_links=("/l",))
    made = plan.make(profile(), Sources(pip=pip))
    near = next(one for one in made.candidates if one.named_index)
    assert near == Candidate(
        source="near index https://near/whl",
        torch="torch==2.10.0+cu128",
        named_index=NEAR,
        default_index="https://pip/",
        extra_indexes=("https://x/",),
        find_links=("/l",),
    )
    assert made.candidates[-1] == Candidate(source=PYPI, torch="torch==2.10.0")


def test_dead_index_of_pip_gives_way_to_the_default_index() -> None:
    pip = PipConfig(index_url="https://pip/", find_links=("/l",))
    made = plan.make(profile(), Sources(pip=pip, dead={"https://pip/": "no"}))
    assert {one.default_index for one in made.candidates} == {None}


def test_default_index_of_the_profile_stands_for_pypi() -> None:
    mirror = msgspec.structs.replace(MAIN, url="https://mirror/")
    made = plan.make(profile(index=(NEAR, mirror)), Sources())
    assert made.candidates[-1].source.startswith("main index https://mirror/, whose")
    assert {one.default_index for one in made.candidates} == {"https://mirror/"}
    dead = plan.make(profile(index=(NEAR, mirror)), Sources(dead={"https://mirror/": "no answer"}))
    assert dead.left_out[-1].reason == "no answer"


def test_no_index_of_pip_leaves_only_folders() -> None:
    pip = PipConfig(index_url="https://pip/", find_links=("/l",), no_index=True)
    made = plan.make(profile(), Sources(pip=pip, wheels=(Path("/w"),)))
    assert all(one.no_index for one in made.candidates)
    assert {one.reason for one in made.left_out} == {"pip is configured to ask no index"}


def test_project_file_takes_only_the_named_packages_from_the_named_index() -> None:
    made = plan.make(profile(), Sources())
    text = tomllib.loads(project_file(profile(), made.candidates[0]))
    assert text["project"]["dependencies"] == ["torch==2.10.0+cu128"]
    assert text["tool"]["uv"]["sources"] == {"torch": {"index": "near"}}
    assert text["tool"]["uv"]["index"] == [
        {"name": "near", "url": "https://near/whl", "explicit": True}
    ]


def test_named_index_is_exempt_from_the_time_limit() -> None:
    made = plan.make(profile(), Sources())
    near, main = made.candidates
    assert compile_options(made, near, cutoff="T") == [
        *("--exclude-newer", "T", "--exclude-newer-package", "torch=false")
    ]
    assert compile_options(made, main, cutoff="T") == ["--exclude-newer", "T"]
    assert compile_options(made, main, cutoff="") == []


def test_options_name_every_source_and_constraint() -> None:
    pip = PipConfig(
        index_url="https://i/", extra_index_urls=("https://x/",), constraints=("/c.txt",)
    )
    made = plan.make(profile(), Sources(pip=pip, wheels=(Path("/w"),)))
    options = compile_options(made, made.candidates[2], cutoff="")
    assert options == [
        *("--default-index", "https://i/", "--index-strategy", "unsafe-best-match"),
        *("--index", "https://x/", "--find-links", "/w", "--constraints", "/c.txt"),
    ]
    alone = compile_options(made, made.candidates[0], cutoff="")
    assert alone[:3] == ["--no-index", "--find-links", "/w"]


@pytest.mark.parametrize("wheels", [(), (Path("/w"),)])
def test_plan_is_a_pure_function(wheels: tuple[Path, ...]) -> None:
    given = Sources(wheels=wheels)
    assert plan.make(profile(), given) == plan.make(profile(), replace(given))
