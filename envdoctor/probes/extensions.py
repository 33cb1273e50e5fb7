"""Read from file names for which Python compiled modules were built."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envdoctor.facts import DistributionsFact, Extension, ExtensionsFact, FactSet, RecordsFact
from envdoctor.probes.files import list_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

_TAG = re.compile(r"\.(cpython-\d+[a-z]*|abi3)(?=[-.]).*so$")
_MAX_ENTRIES = 2000


def read_extensions(subject: Subject, facts: FactSet) -> ExtensionsFact:
    """List the compiled modules at the top of the package folders and one level below."""
    del subject
    records = facts.get(RecordsFact)
    known = records.libraries if isinstance(records, RecordsFact) else ()
    owners = {path: name for name, path in known}
    return ExtensionsFact(
        extensions=tuple(
            Extension(path=path, tag=tag_of(path), owner=owners.get(path, ""))
            for _, module in facts.need(DistributionsFact).modules
            for path in _shared_objects(module)
        )
    )


def _shared_objects(module: str) -> Iterator[str]:
    if module.endswith(".so"):
        yield module
    elif not module.endswith(".py"):
        for name in list_folder(module)[:_MAX_ENTRIES]:
            if name.endswith(".so"):
                yield f"{module}/{name}"


def tag_of(path: str) -> str:
    """Return the tag in an extension's file name, such as `cpython-311`; empty if it has none.

    Source: PEP 3149; CPython's `sysconfig.get_config_var("EXT_SUFFIX")`.
    """
    match = _TAG.search(path.rpartition("/")[2])
    return match[1] if match else ""
