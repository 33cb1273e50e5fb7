"""Find Python environments and their folders by reading files, never by running them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envdoctor.errors import UsageError
from envdoctor.facts import FactSet, InterpreterFact
from envdoctor.probes.files import UnreadableError, is_folder, list_folder, read_text

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject

_LIBRARY = re.compile(r"python3\.(\d+)(t?)$")


def running_prefix() -> Path:
    """Return the folder of the environment that envdoctor runs in."""
    return Path(sys.prefix)


def prefix_of_python(python: str) -> Path:
    """Return the environment that an interpreter belongs to, without running it.

    Args:
        python: A path, or a command name to look up on PATH.

    Raises:
        UsageError: There is no such file, it is a script, or no environment lies around it.
    """
    found = shutil.which(python) if os.sep not in python else python
    path = Path(os.path.abspath(found or python))  # noqa: PTH100  resolve() would leave the venv
    if os.sep in python and path.is_dir() and is_environment(path):
        return path
    if found is None or not path.is_file():
        what = "a folder that holds no environment" if path.is_dir() else "no such interpreter"
        raise UsageError(
            f"--python {python}: {what}",
            reference="python-not-found",
            hint="give the path of a python executable, such as .venv/bin/python",
        )
    if _is_script(path):
        raise UsageError(
            f"--python {path}: it is a script (a version manager's shim?), not an interpreter",
            reference="python-is-a-script",
            hint="give the real interpreter: the path that `python -c 'import sys; "
            "print(sys.executable)'` prints",
        )
    for folder in (path.parent.parent, path.resolve().parent.parent):
        if is_environment(folder):
            return folder
    kind = "" if os.access(path, os.X_OK) else "it is not executable, and "
    raise UsageError(
        f"--python {path}: {kind}no environment lies around it "
        f"(looked for lib/python3.* in {path.parent.parent} and {path.resolve().parent.parent})",
        reference="no-environment",
    )


def checked_prefix(prefix: Path) -> Path:
    """Return the prefix as an absolute path if it holds an environment.

    Raises:
        UsageError: It does not exist, is no folder, or holds no `lib/python3.*`.
    """
    path = Path(os.path.abspath(prefix))  # noqa: PTH100  keep symbolic links as the user wrote them
    if not path.exists():
        raise UsageError(f"{prefix}: no such folder", reference="no-environment")
    if not path.is_dir():
        raise UsageError(
            f"{prefix}: it is a file; an environment's folder is wanted",
            reference="no-environment",
            hint="for an interpreter use --python",
        )
    if (path / "Lib/site-packages").is_dir() and not _library_names(path):
        raise UsageError(
            f"{prefix}: an environment of Windows; envdoctor judges Linux only",
            reference="platform-not-judged",
        )
    if not is_environment(path):
        raise UsageError(
            f"{prefix}: no Python environment (no pyvenv.cfg and no lib/python3.* inside)",
            reference="no-environment",
            hint="give the folder that holds bin/python and lib/python3.*",
        )
    return path


def is_environment(folder: Path) -> bool:
    """Tell whether a folder is laid out like a Python environment."""
    return (folder / "pyvenv.cfg").is_file() or bool(_library_names(folder))


def read_interpreter(subject: Subject, facts: FactSet) -> InterpreterFact:
    """Read the layout of the environment at the subject's prefix."""
    del facts
    prefix = subject.prefix
    settings = venv_settings(prefix)
    version = settings.get("version_info") or settings.get("version") or _version_of(prefix)
    minor = ".".join(version.split(".")[:2])
    shares = settings.get("include-system-site-packages", "").lower() == "true"
    user_site = _user_site(subject, minor) if shares or not settings else None
    own = _site_folders(prefix, minor)
    home = settings.get("home")
    system = _site_folders(subject.locate(home).parent, minor) if shares and home else []
    # Python's order: a virtual environment's packages, the user's, the system's.
    folders = [*(own if settings else []), *([user_site] if user_site else []), *own, *system]
    python = next((p for p in (prefix / "bin/python", prefix / "bin/python3") if p.exists()), None)
    return InterpreterFact(
        prefix=str(prefix),
        python=str(python) if python else None,
        version=version,
        is_venv=bool(settings),
        site_packages=tuple(dict.fromkeys(str(folder) for folder in folders)),
        user_site=str(user_site) if user_site else None,
    )


def _user_site(subject: Subject, minor: str) -> Path | None:
    """Return the folder of packages that the user installed for all environments, if it is used.

    Source: Python's `site` module documentation.
    """
    if subject.variables.get("PYTHONNOUSERSITE"):
        return None
    home = subject.variables.get("HOME")
    base = subject.variables.get("PYTHONUSERBASE") or (f"{home}/.local" if home else "")
    folder = subject.locate(f"{base}/lib/python{minor}/site-packages") if base else None
    return folder if folder and is_folder(folder) else None


def _is_script(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


def venv_settings(prefix: Path) -> dict[str, str]:
    """Read `pyvenv.cfg`; empty if there is none or it cannot be read."""
    try:
        text = read_text(prefix / "pyvenv.cfg") or ""
    except UnreadableError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _library_names(prefix: Path) -> list[str]:
    return [name for name in list_folder(prefix / "lib") if _LIBRARY.match(name)]


def _version_of(prefix: Path) -> str:
    """Tell the version of a Python that is no venv: the running one, or by its folders' names."""
    if prefix == Path(sys.prefix):
        return ".".join(str(part) for part in sys.version_info[:3])
    target = (prefix / "bin/python3").resolve().name
    names = _library_names(prefix)
    # A system prefix may hold folders of several versions: the interpreter's own name decides.
    with_library = [name for name in names if (prefix / "lib" / name / "os.py").exists()]
    chosen = target if target in names else (with_library or names or ["python3.0"])[-1]
    return chosen.removeprefix("python").removesuffix("t")


def _site_folders(prefix: Path, minor: str) -> list[Path]:
    """Return existing package folders of a prefix, in import order, each real folder once."""
    candidates = [
        prefix / "lib" / f"python{minor}" / "site-packages",
        prefix / "lib" / f"python{minor}t" / "site-packages",
        prefix / "lib64" / f"python{minor}" / "site-packages",
        # Debian's layout: packages of apt apart from those of pip
        prefix / "local/lib" / f"python{minor}" / "dist-packages",
        prefix / "lib" / f"python{minor}" / "dist-packages",
        prefix / "lib/python3/dist-packages",
    ]
    seen: dict[Path, Path] = {}
    for folder in candidates:
        if is_folder(folder):
            seen.setdefault(folder.resolve(), folder)
    return list(seen.values())
