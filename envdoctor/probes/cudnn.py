"""Find the libraries that cuDNN opens by name while it runs."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.facts import FoundLibrary
    from envdoctor.probes.linker import Linker, Mapped

_MAIN = re.compile(r"libcudnn\.so\.\d+$")
_FIRST = ("graph", "ops", "cnn", "adv")
_CHUNK = 4 * 1024 * 1024
_MAX_BYTES = 256 * 1024 * 1024
_OPENERS = ("libcudnn", "libcudnn_graph")
"""Only these two hold the names of the others; read off cuDNN 9.10, 9.19 and 9.24."""


def open_parts(linker: Linker) -> tuple[FoundLibrary, ...]:
    """Open each part of the loaded cuDNN as it does itself; return where each was found.

    It asks by bare names, so LD_LIBRARY_PATH comes before a RUNPATH of `$ORIGIN`, and the
    machine's folders supply what its own folder lacks.
    """
    main = next((item for item in linker.objects if _MAIN.match(item.found.name)), None)
    if main is None or main.file.header is None:
        return ()
    release = main.found.name.rpartition(".")[2]
    own = _parts_in(linker.files.names(main.file.folder), release)
    foreign = set(_visible(linker, release)) - own
    parts: list[FoundLibrary] = []
    for name in (*sorted(own, key=_turn), *sorted(foreign)):
        certain = True if name in own else _asks_for(main, name, release)
        item = linker.open(name, by=main, distribution="torch") if certain is not False else None
        if item is not None:
            parts.append(replace(item.found, is_certain=bool(certain)))
    return tuple(parts)


def _turn(name: str) -> tuple[int, str]:
    """Sort parts as a process opens them: what is loaded stays, whoever asks for it next.

    `cudnnGetVersion` and `cudnnCreate` are in graph, descriptors of tensors in ops.
    """
    part = name.removeprefix("libcudnn_").partition(".")[0]
    return (_FIRST.index(part) if part in _FIRST else len(_FIRST)), name


def _parts_in(names: frozenset[str], release: str) -> set[str]:
    end = f".so.{release}"
    return {name for name in names if name.startswith("libcudnn_") and name.endswith(end)}


def _visible(linker: Linker, release: str) -> Iterator[str]:
    """Yield the names of parts that any search would find."""
    for folder in linker.path.library_path:
        yield from _parts_in(linker.files.names(folder), release)
    yield from _parts_in(frozenset(linker.path.cache), release)


def _asks_for(main: Mapped, name: str, release: str) -> bool | None:
    """Tell whether this cuDNN would open a part; None if its files do not tell."""
    stem = name.removesuffix(f".{release}").encode()
    openers = [f"{main.file.folder}/{opener}.so.{release}" for opener in _OPENERS]
    if any(_holds(path, stem + b"\0") for path in openers):
        return True
    return False if _holds(openers[0], b"libcudnn_graph.so\0") else None


def _holds(path: str, text: bytes) -> bool:
    """Tell whether a file holds a text, looking at a bounded part of it."""
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123  a string
            tail = b""
            for _ in range(_MAX_BYTES // _CHUNK):
                chunk = os.read(stream.fileno(), _CHUNK)
                if not chunk:
                    return False
                if text in tail + chunk:
                    return True
                tail = chunk[-len(text) :]
    except OSError:
        return False
    return False
