"""Read the devices that NCCL and Gloo may be told to use, and NCCL's configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.facts import (
    FactSet,
    LoaderCacheFact,
    NcclFile,
    NcclFilesFact,
    NcclPluginsFact,
    NetworkFact,
    UserFact,
)
from envdoctor.probes.files import UnreadableError, is_folder, list_folder, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.probes.subject import Subject

_PLUGIN = "libnccl-net"


def read_network(subject: Subject, facts: FactSet) -> NetworkFact:
    """List network interfaces and RDMA devices from sysfs.

    Raises:
        LookupError: The root holds no sysfs, as an unpacked image does not.
    """
    del facts
    folder = subject.root / "sys/class/net"
    if not is_folder(folder):
        raise LookupError(f"{subject.shown(folder)} is not there")
    return NetworkFact(
        interfaces=tuple(name for name in list_folder(folder) if is_folder(folder / name)),
        hcas=tuple(list_folder(subject.root / "sys/class/infiniband")),
    )


def read_nccl_files(subject: Subject, facts: FactSet) -> NcclFilesFact:
    """Read NCCL's configuration files in the order in which they win.

    Source: NCCL user guide, environment variables: NCCL_CONF_FILE or `~/.nccl.conf`, then
    `/etc/nccl.conf`; a variable that is set wins over both.
    """
    user = facts.get(UserFact)
    home = subject.variables.get("HOME") or (user.home if isinstance(user, UserFact) else "")
    files = []
    for path in _nccl_paths(subject, home or ""):
        try:
            text = read_text(path)
        except UnreadableError:
            continue
        if text is not None:
            settings = tuple(parse_nccl_conf(text))
            files.append(NcclFile(path=subject.shown(path), settings=settings))
    return NcclFilesFact(files=tuple(files))


def _nccl_paths(subject: Subject, home: str) -> Iterator[Path]:
    named = subject.variables.get("NCCL_CONF_FILE", "")
    if Path(named).is_absolute():
        yield subject.locate(named)
    elif Path(home).is_absolute():
        yield subject.locate(home) / ".nccl.conf"
    yield subject.root / "etc/nccl.conf"


def parse_nccl_conf(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a configuration file: one `NAME=value` a line, `#` for comments."""
    for line in text.splitlines():
        name, equals, value = line.partition("#")[0].partition("=")
        if equals and name.strip():
            yield name.strip(), value.strip()


def read_nccl_plugins(subject: Subject, facts: FactSet) -> NcclPluginsFact:
    """Find NCCL's network plugins where the loader looks, and those that a variable names.

    Source: NCCL user guide, NCCL_NET_PLUGIN: a name is looked for by the loader.
    """
    named = [name.strip() for name in subject.variables.get("NCCL_NET_PLUGIN", "").split(",")]
    wanted = {*named, *(f"lib{name}.so" for name in named)}
    folders = filter(None, subject.variables.get("LD_LIBRARY_PATH", "").split(":"))
    cache = facts.get(LoaderCacheFact)
    known = [
        *((name, f"{at}/{name}") for at in folders for name in list_folder(subject.locate(at))),
        *(cache.entries if isinstance(cache, LoaderCacheFact) else ()),
        *((name, name) for name in named if "/" in name and subject.locate(name).is_file()),
    ]
    found = (path for name, path in known if name.startswith(_PLUGIN) or name in wanted)
    return NcclPluginsFact(paths=tuple(dict.fromkeys(found)))
