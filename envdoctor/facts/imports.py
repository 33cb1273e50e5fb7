"""Readings of the folders that Python imports from."""

from __future__ import annotations

from typing import Literal

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value

Origin = Literal["site-packages", "PYTHONPATH", "user site", "working folder", "startup file"]
"""What puts a folder on `sys.path`: the interpreter itself, a variable, or a file it runs."""

Form = Literal["package", "module", "extension", "namespace"]
"""A folder with `__init__.py`, a `.py` file, a shared object, a folder without `__init__.py`."""

InitText = Literal["none", "empty", "namespace", "code"]
"""What an `__init__.py` holds: comments at most, a namespace declaration, or code."""


@keyword_value
class ImportFolder:
    """One folder of `sys.path`.

    Args:
        path: As it stands there.
        origin: What put it there.
        source: The file that names it, for a startup file; else empty.
    """

    path: str
    origin: Origin
    source: str = ""


@keyword_value
class ModuleCopy:
    """One copy of a top-level module.

    Args:
        name: Import name.
        path: Folder or file.
        folder: The folder of `sys.path` that holds it.
        form: How Python would take it.
        init: What its `__init__.py` holds.
        owner: Name and version of the distribution beside it whose RECORD lists the file that makes
            it importable, such as `cuda-python 12.6.0`; empty if none does or nobody looked.
    """

    name: str
    path: str
    folder: ImportFolder
    form: Form
    init: InitText = "none"
    owner: str = ""


@keyword_value
class StartupFile:
    """A file that Python runs when it starts and that edits `sys.path`.

    Args:
        path: A `.pth` file, `sitecustomize.py` or `usercustomize.py`.
        is_clear: True if the folders that it inserts stand in it as plain text.
    """

    path: str
    is_clear: bool


@keyword_value
class ImportPathFact(Fact):
    """Where Python finds the modules that matter, in the order in which it looks.

    Args:
        folders: Folders of `sys.path` that exist, without those of the standard library.
        copies: Every copy of a module that matters, in the order of the folders.
        startup_files: Those that edit `sys.path` ahead of the environment's own folders.
    """

    folders: tuple[ImportFolder, ...]
    copies: tuple[ModuleCopy, ...] = ()
    startup_files: tuple[StartupFile, ...] = ()


@keyword_value
class Extension:
    """A compiled module whose file name says for which Python it was built.

    Args:
        path: The file.
        tag: Such as `cpython-311`, `cpython-313t` or `abi3`; empty if the name says nothing.
        owner: Normalised name of the distribution that recorded it; empty if none did.
    """

    path: str
    tag: str
    owner: str = ""


@keyword_value
class ExtensionsFact(Fact):
    """Compiled modules at the top of the package folders and of the packages in them."""

    extensions: tuple[Extension, ...]
