"""Checks of what Python imports in place of what is installed."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from envdoctor.check import check, problems
from envdoctor.facts import (
    DistributionsFact,
    ImportPathFact,
    ModuleCopy,
    PolicyFact,
    VariablesFact,
)
from envdoctor.requirements import name_of
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMESPACES = frozenset({"cuda", "nvidia"})
_CRITICAL = frozenset({"cuda", "functorch", "numpy", "nvidia", "torch", "torchgen", "triton"})


@check()
def module_shadowed(paths: ImportPathFact, variables: VariablesFact) -> Verdict:
    """Another file is imported in place of an installed package.

    ## What it checks
    Folders that come before the environment's own packages on `sys.path` (the working folder,
    PYTHONPATH, the user's own packages in ~/.local, what a startup file inserts): whether one holds
    a module of the name of torch, Triton, numpy or another package that training imports.

    ## Why it matters
    `import torch` takes the first it finds, be it a script named torch.py or a package that was
    installed for another environment; every check of the installed one then says "fine".

    ## Remedy
    Rename or remove what shadows, or take its folder off PYTHONPATH; for packages in ~/.local set
    PYTHONNOUSERSITE=1.

    ## Source
    Python documentation, "The initialization of the sys.path module search path".
    """
    names = {copy.name for copy in paths.copies} - _NAMESPACES
    found = list(_by_folder(paths, variables, names))
    return problems(found, Ok(f"{len(paths.folders)} folders on the import path, none in the way"))


def _by_folder(
    paths: ImportPathFact, variables: VariablesFact, names: set[str]
) -> Iterator[Problem]:
    """Yield one problem for each folder that shadows: it is the cause, its modules are many."""
    groups: dict[str, list[tuple[ModuleCopy, ModuleCopy]]] = {}
    for name in sorted(names):
        taken, hidden = _winner(paths, name)
        if taken and hidden:
            groups.setdefault(taken.folder.path, []).append((taken, hidden))
    for pairs in groups.values():
        yield _shadowing(pairs, variables)


def _winner(paths: ImportPathFact, name: str) -> tuple[ModuleCopy | None, ModuleCopy | None]:
    """Return the copy that Python takes, and the environment's own if that is another, later one.

    A folder without `__init__.py` is taken only if nothing later is a real module.
    """
    copies = [copy for copy in paths.copies if copy.name == name and copy.form != "namespace"]
    if not copies or copies[0].folder.origin == "site-packages":
        return None, None
    own = (copy for copy in copies[1:] if copy.folder.origin == "site-packages")
    return copies[0], next(own, None)


def _shadowing(pairs: list[tuple[ModuleCopy, ModuleCopy]], variables: VariablesFact) -> Problem:
    # what matters most is named first
    pairs = sorted(pairs, key=lambda pair: (pair[0].name != "torch", pair[0].name not in _CRITICAL))
    taken, hidden = pairs[0]
    names = ", ".join(copy.name for copy, _ in pairs)
    is_grave = any(copy.name in _CRITICAL for copy, _ in pairs)
    # Nobody has to train from the folder that envdoctor happens to be started in.
    severe = is_grave and taken.folder.origin != "working folder"
    owner = f" (of {taken.owner})" if taken.owner else ""
    return Problem(
        culprit=taken.path,
        severity=Severity.ERROR if severe else Severity.WARNING,
        message=f"{taken.path}{owner} shadows the installed {hidden.path}: "
        f"{_reason(taken)} comes first ({names})",
        evidence=tuple(
            Evidence(subject=f"import {copy.name}", expected=own.path, found=copy.path)
            for copy, own in pairs
        ),
        remedy=shadow_remedy(taken, variables),
    )


def _reason(copy: ModuleCopy) -> str:
    folder = copy.folder
    if folder.origin == "startup file":
        return f"{folder.path}, inserted by {folder.source},"
    return f"{folder.path} ({folder.origin})"


def shadow_remedy(copy: ModuleCopy, variables: VariablesFact) -> Remedy:
    """Return how to take a copy out of the way, by what puts its folder on the path."""
    folder = copy.folder
    match folder.origin:
        case "PYTHONPATH":
            return _off_python_path(folder.path, variables)
        case "user site":
            name = copy.owner.partition(" ")[0]
            return Remedy(
                kind="set-env",
                text="Keep Python from packages in ~/.local"
                + (f", or uninstall {name} there." if name else "."),
                commands=("export PYTHONNOUSERSITE=1",),
            )
        case "startup file":
            return Remedy(
                kind="config-change",
                text=f"Take {folder.path} out of {folder.source}, or move that file away.",
                commands=(
                    f"mv {shlex.quote(folder.source)} {shlex.quote(folder.source + '.off')}",
                ),
            )
        case _:
            return Remedy(
                kind="config-change",
                text=f"Rename {copy.path}, or start Python from another folder.",
            )


def _off_python_path(path: str, variables: VariablesFact) -> Remedy:
    listed = (variables.get("PYTHONPATH") or "").split(":")
    rest = ":".join(item for item in listed if item and item.rstrip("/") != path.rstrip("/"))
    command = f"export PYTHONPATH={shlex.quote(rest)}" if rest else "unset PYTHONPATH"
    return Remedy(
        kind="unset-env",
        text=f"Take {path} off PYTHONPATH, or rename what shadows.",
        commands=(command,),
    )


@check()
def namespace_package_closed(
    paths: ImportPathFact,
    installed: DistributionsFact,
    variables: VariablesFact,
    policy: PolicyFact,
) -> Verdict:
    """An `__init__.py` closes a package that many distributions share.

    ## What it checks
    `cuda` and `nvidia` are namespace packages: cuda-bindings, cuda-pathfinder, cudnn and others
    each put a part into them, and none may own `cuda/__init__.py`. (Wheels for CUDA 12 share an
    empty `nvidia/__init__.py`; that is normal.) An error if such a file comes first on `sys.path`
    and parts lie in a later folder, which it hides; else a warning.

    ## Why it matters
    `import cuda.bindings` fails though the package is installed, and what works depends on the
    order of folders.

    ## Remedy
    Upgrade or remove the distribution that owns the file.

    ## Source
    NVIDIA/cuda-python#477; Python documentation of namespace packages (PEP 420).
    """
    found = [
        problem
        for name in sorted(_NAMESPACES)
        if (problem := _closed(name, paths, installed, variables, policy))
    ]
    return problems(found, Ok("cuda and nvidia are open to all their parts"))


def _closed(
    name: str,
    paths: ImportPathFact,
    installed: DistributionsFact,
    variables: VariablesFact,
    policy: PolicyFact,
) -> Problem | None:
    copies = [copy for copy in paths.copies if copy.name == name]
    closing = next((copy for copy in copies if copy.form != "namespace"), None)
    if closing is None or closing.init == "namespace":
        return None
    hidden = [copy for copy in copies if copy.folder != closing.folder]
    own = closing.folder.origin == "site-packages"
    if own and name == "nvidia" and closing.init == "empty":
        return None  # what wheels for CUDA 12 share
    if not hidden and not (own and _has_other_parts(closing, installed)):
        return None
    is_grave = hidden and closing.folder.origin != "working folder"
    severity = Severity.ERROR if is_grave else Severity.WARNING
    where = (
        f"{_reason(closing)} comes first and hides {', '.join(copy.path for copy in hidden)}"
        if hidden
        else "other packages have parts beside it"
    )
    owner = f" of {closing.owner}" if closing.owner else ""
    file = f"{closing.path}/__init__.py" if closing.form == "package" else closing.path
    return Problem(
        culprit=closing.owner.partition(" ")[0] or file,
        severity=severity,
        message=f"{file}{owner} makes `{name}` a package of one owner: {where}",
        evidence=(
            Evidence(subject=file, expected="no such file", found=closing.owner or "no owner"),
            *(Evidence(subject=copy.path, found="hidden") for copy in hidden),
        ),
        remedy=_opening_remedy(closing, installed, variables, policy),
    )


def _has_other_parts(closing: ModuleCopy, installed: DistributionsFact) -> bool:
    owner = closing.owner.partition(" ")[0]
    return any(
        dist.name != owner and re.match(rf"{closing.name}-(?!toolkit|python)", dist.name)
        for dist in installed.distributions
    )


def _opening_remedy(
    closing: ModuleCopy,
    installed: DistributionsFact,
    variables: VariablesFact,
    policy: PolicyFact,
) -> Remedy:
    owner = closing.owner.partition(" ")[0]
    elsewhere = shadow_remedy(closing, variables)
    if not owner:
        return elsewhere
    if closing.folder.origin == "site-packages":
        is_required = any(
            name_of(line) == owner for dist in installed.distributions for line in dist.requires
        )
        commands: tuple[str, ...] = (
            f"{policy.pip_add} --upgrade {owner}"
            if is_required
            else f"{policy.pip_uninstall} {owner}",
        )
    else:
        commands = elsewhere.commands
    return Remedy(
        kind="remove-or-upgrade-package",
        text=f"Upgrade {owner} to a release without that file, or remove it from "
        f"{closing.folder.path}; that folder can also come off the import path.",
        commands=commands,
    )


@check()
def startup_file_edits_path(paths: ImportPathFact) -> Verdict:
    """A file that Python runs at start inserts folders ahead of the installed packages.

    ## What it checks
    `.pth` files, sitecustomize.py and usercustomize.py in the folders of `sys.path`, as text: code
    that inserts into `sys.path` from folders that cannot be told without running it.

    ## Why it matters
    What is imported then depends on that code, and a static check cannot say what it is.

    ## Remedy
    Look at the file; `python -c "import sys; print(sys.path)"` shows its effect.

    ## Source
    Python documentation of the `site` module.
    """
    found = [
        Problem(
            culprit=file.path,
            severity=Severity.INFO,
            message=f"{file.path} inserts folders into sys.path when Python starts",
            evidence=(Evidence(subject=file.path, found="sys.path is edited by code"),),
            remedy=Remedy(kind="config-change", text="Look at what it inserts."),
        )
        for file in paths.startup_files
        if not file.is_clear
    ]
    return problems(found, Ok("no startup file edits the import path unseen"))
