"""Readings of the dynamic linker: its configuration, and where it would find each library."""

from __future__ import annotations

from typing import Literal

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value

Via = Literal[
    "opened", "LD_PRELOAD", "RPATH", "LD_LIBRARY_PATH", "RUNPATH", "ld.so.cache", "default"
]
"""Why a library is found where it is; `opened` by its path, as torch opens its own."""


@keyword_value
class LoaderConfigFact(Fact):
    """What the machine's files tell the dynamic linker.

    Args:
        folders: Pairs of a folder and the ld.so.conf file that names it, in their order.
        preloaded: What `/etc/ld.so.preload` loads into every process.
    """

    folders: tuple[tuple[str, str], ...] = ()
    preloaded: tuple[str, ...] = ()


@keyword_value
class LoaderCacheFact(Fact):
    """The dynamic linker's cache.

    Args:
        entries: Pairs of SONAME and path, the one that is taken for each name.
    """

    entries: tuple[tuple[str, str], ...] = ()


@keyword_value
class FoundLibrary:
    """Where a search for a library ends.

    Args:
        name: What was asked for, usually a SONAME.
        path: The file; empty if there is none.
        via: Why there.
        source: What points there: the object with the RPATH, the variable, the ld.so.conf file.
        target: Name of the file behind symbolic links, which may tell a version.
        is_certain: False if it cannot be told that anything will ask for it.
    """

    name: str
    path: str = ""
    via: Via = "default"
    source: str = ""
    target: str = ""
    is_certain: bool = True


@keyword_value
class LoadedObject:
    """A shared object that a process with torch would load.

    Args:
        found: Where it is and why.
        soname: Its own DT_SONAME.
        needed_by: Path of the object that asked for it first; empty for what Python opens.
        distribution: Normalised name of the distribution that it is loaded for first; empty for
            what is there before torch.
        needs: Its DT_NEEDED in order, each with the path it lands on; empty where on none.
        error: Why the loader would not take the file; empty if it would.
    """

    found: FoundLibrary
    soname: str = ""
    needed_by: str = ""
    distribution: str = ""
    needs: tuple[tuple[str, str], ...] = ()
    error: str = ""

    @property
    def path(self) -> str:
        """The file."""
        return self.found.path


@keyword_value
class Shadow:
    """A library of the environment in whose place another file is loaded.

    Args:
        found: The file that is loaded.
        soname: Its own DT_SONAME.
        own: The environment's file.
        num_lacking: How many functions the environment's file has and the loaded one lacks.
        is_copy: True if both have the same SONAME, size and functions.
    """

    found: FoundLibrary
    soname: str
    own: str
    num_lacking: int
    is_copy: bool


@keyword_value
class Unmet:
    """What an object needs of a library that this library does not define.

    Args:
        path: The object.
        distribution: Normalised name of the distribution it belongs to; empty if unknown.
        name: SONAME of the library; empty where symbols may come from any library of torch.
        provider: The file that is taken for it; empty where it may be any.
        versions: Version nodes that are not there, such as `GLIBCXX_3.4.34`.
        symbols: Symbols that are not there, some of them if they are many.
    """

    path: str
    distribution: str
    name: str = ""
    provider: str = ""
    versions: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()


@keyword_value
class LoaderFact(Fact):
    """What the dynamic linker would do for `import torch` and the packages built against it.

    Args:
        objects: What is loaded, in the order in which it is.
        shipped: Pairs of SONAME and path of the libraries that the environment's packages ship.
        shadows: Those of them in whose place another file is loaded.
        unmet: Version nodes and symbols that are needed and not there.
        passed_over: Files that a search met and did not stop at: made for another machine.
        cudnn: What cuDNN opens by name while it runs.
        drivers: Every `libcuda.so.1` that the search passes; the first one is taken.
        runtimes: The CUDA runtimes that a search by name finds.
        private_libstdcxx: Files of the interpreter's own prefix that define what the loaded
            libstdc++ lacks.
        conda_libstdcxx: Names of the conda packages that bring libstdc++ to that prefix.
        lost_libstdcxx: Paths below that prefix that should hold conda's libstdc++ and do not.
    """

    objects: tuple[LoadedObject, ...] = ()
    shipped: tuple[tuple[str, str], ...] = ()
    shadows: tuple[Shadow, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    passed_over: tuple[str, ...] = ()
    cudnn: tuple[FoundLibrary, ...] = ()
    drivers: tuple[FoundLibrary, ...] = ()
    runtimes: tuple[FoundLibrary, ...] = ()
    private_libstdcxx: tuple[str, ...] = ()
    conda_libstdcxx: tuple[str, ...] = ()
    lost_libstdcxx: tuple[str, ...] = ()

    def paths_of(self, soname: str) -> tuple[str, ...]:
        """Return where the environment's packages ship a library."""
        return tuple(path for name, path in self.shipped if name == soname)

    def missing(self) -> dict[str, list[str]]:
        """Return the libraries that are found nowhere, each with the objects that need it."""
        found: dict[str, list[str]] = {}
        for item in self.objects:
            for name, path in item.needs:
                if not path:
                    found.setdefault(name, []).append(item.path)
        return found
