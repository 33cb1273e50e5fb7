"""Which of torch's own package indexes holds a build."""

from __future__ import annotations

import re

from envdoctor.compatibility import default_variants

_VARIANT = re.compile(r"cpu|cu\d+|rocm[\d.]+|xpu")

_RELEASE = re.compile(r"\d+(\.\d+)*(rc\d+|\.post\d+|\.dev\d{8})*")


def public_version(version: str) -> str:
    """Return a version without its local tag."""
    return version.partition("+")[0]


def index_option(version: str) -> str:
    """Return the option for the index that a version's local tag names, with a space after it.

    Only that index has builds with such a tag; empty for a version without one.
    """
    local = version.partition("+")[2]
    if not _VARIANT.fullmatch(local):
        return ""
    nightly = "nightly/" if ".dev" in version else ""
    return f"--index-url https://download.pytorch.org/whl/{nightly}{local} "


def is_published(version: str) -> bool:
    """Tell whether an index may hold a build; none holds those that vendors make from source."""
    local = version.partition("+")[2]
    return bool(_RELEASE.fullmatch(public_version(version))) and (
        not local or bool(_VARIANT.fullmatch(local))
    )


def default_build(version: str) -> str:
    """Return a torch version with the tag of its default CUDA build; empty if none is recorded."""
    public = public_version(version)
    variant = default_variants().get(".".join(public.split(".")[:2]))
    return f"{public}+{variant}" if variant else ""
