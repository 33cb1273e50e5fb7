"""Checks of the folders that compiled kernels are kept in."""

from __future__ import annotations

import shlex
from itertools import groupby

from envdoctor.caches.access import WeakSpot, weak_steps
from envdoctor.check import check, problems
from envdoctor.facts import (
    CacheFolder,
    CachesFact,
    DistributionsFact,
    NvidiaFact,
    PathOwner,
    PathStep,
    UserFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

_VARIABLES = {"triton": "TRITON_CACHE_DIR", "inductor": "TORCHINDUCTOR_CACHE_DIR"}
_COMPILERS = frozenset({*_VARIABLES, "headers"})
_OWNER_WRITES, _OTHERS_WRITE = 0o200, 0o002


@check(requires=["user-without-name"])
def cache_folder_not_writable(
    caches: CachesFact, user: UserFact, installed: DistributionsFact
) -> Verdict:
    """A compile cache belongs to somebody else or cannot be written.

    ## What it checks
    The folders that Triton and Inductor keep compiled kernels in (TRITON_CACHE_DIR, TRITON_HOME,
    TORCHINDUCTOR_CACHE_DIR or their defaults), or the nearest folder above that is there: this user
    owns it and can write to it. A cache that is not there yet is normal.

    ## Why it matters
    torch.compile and Triton stop with PermissionError on a lock or kernel file; and whoever owns
    the folder can put code into it that runs as you.

    ## Remedy
    Point both variables at a folder of your own.

    ## Source
    triton-lang/triton#518; torch/_inductor/runtime/cache_dir_utils.py, read 2026-11-29.
    """
    used = {"inductor", "triton"} if installed.find("triton") else {"inductor"}
    barred = [
        (folder, folder.owner, fault)
        for folder in caches.folders
        if folder.kind in used and folder.owner and (fault := _fault(folder, folder.owner, user))
    ]
    # Variables that name one folder have one cause.
    barred.sort(key=lambda item: item[1].path)
    groups = [list(group) for _, group in groupby(barred, key=lambda item: item[1].path)]
    found = [_barred([folder for folder, _, _ in group], group[0], user) for group in groups]
    return problems(found, Ok("compile caches can be written"))


def _fault(folder: CacheFolder, owner: PathOwner, user: UserFact) -> str:
    if _is_closed(owner, user):
        whose = "" if owner.uid in (None, user.uid) else f", it belongs to uid {owner.uid}"
        return f"uid {user.uid} cannot write to it{whose}"
    if _lacks_home(folder, user):
        return f"uid {user.uid} cannot write to its home folder {user.home}"
    # root runs containers with other people's folders mounted
    if folder.exists and user.uid != 0 and owner.uid not in (None, user.uid):
        return f"it belongs to uid {owner.uid}, not to uid {user.uid}"
    return ""


def _lacks_home(folder: CacheFolder, user: UserFact) -> bool:
    """Tell whether a cache that is not there would have to be made in a home that is closed."""
    below = f"{(user.home or '').rstrip('/')}/"
    return not (folder.exists or user.home_writable) and folder.path.startswith(below)


def _is_closed(owner: PathOwner, user: UserFact) -> bool:
    """Tell whether the user cannot write; owner and mode decide where nobody tried."""
    if owner.is_writable is not None or owner.uid is None or owner.mode is None or user.uid == 0:
        return owner.is_writable is False
    return not owner.mode & (_OWNER_WRITES if owner.uid == user.uid else _OTHERS_WRITE)


def _barred(
    folders: list[CacheFolder], first: tuple[CacheFolder, PathOwner, str], user: UserFact
) -> Problem:
    folder, owner, fault = first
    variables = list(dict.fromkeys(item.variable or _VARIABLES[item.kind] for item in folders))
    named = " and ".join(f"{name}={folder.path}" for name in variables if folder.variable)
    is_error = _is_closed(owner, user) or _lacks_home(folder, user)
    mode = "" if owner.mode is None else f", mode {owner.mode:04o}"
    where = str(user.home) if _lacks_home(folder, user) else owner.path
    above = "" if folder.exists else f" (for {folder.path}, which is not there yet)"
    return Problem(
        culprit=variables[0] if folder.variable else folder.path,
        severity=Severity.ERROR if is_error else Severity.WARNING,
        message=f"compile cache {where}{above}: {fault}" + (f" ({named})" if named else ""),
        evidence=(
            Evidence(
                subject=where,
                expected=f"a folder that uid {user.uid} owns and can write",
                found=f"uid {owner.uid}{mode}",
            ),
        ),
        remedy=Remedy(
            kind="set-env",
            text="Point the compile caches at a local folder of your own.",
            commands=tuple(
                f"export {name}={_own_folder(user)}/{kind}"
                for kind, name in _VARIABLES.items()
                if name in variables or (name == "TRITON_CACHE_DIR" and "TRITON_HOME" in variables)
            ),
        ),
    )


def _own_folder(user: UserFact) -> str:
    if user.home and user.home_writable:
        return shlex.quote(f"{user.home}/.cache/torch-compile")
    return f"/tmp/torch-compile-{user.uid}"


@check()
def cache_folder_open_to_all(caches: CachesFact, user: UserFact | None) -> Verdict:
    """Everybody on this machine may write into a compile cache, or put another in its place.

    ## What it checks
    The permission bits of the cache folders and of every folder on the way to them, through links:
    writable for others without the sticky bit. And whether a folder or link on the way belongs to
    somebody else than this user and root. Inductor keeps precompiled C++ headers in its default
    folder below the one for temporary files whatever TORCHINDUCTOR_CACHE_DIR says: that one too.

    ## Why it matters
    Entries are shared objects and pickles that run as you: anybody can replace them.

    ## Remedy
    Take the permission away, or use a folder of your own. `envdoctor cache verify` also looks at
    the folders and files inside.

    ## Source
    torch/_inductor/codecache.py, which loads what it finds, read 2026-11-29.
    """
    spots = {
        spot.path: _open_spot(folder, spot)
        for folder in caches.folders
        if folder.exists and folder.kind in _COMPILERS
        for spot in _spots(folder, user)
    }
    return problems([*spots.values()], Ok("no compile cache is open to everybody"))


def _spots(folder: CacheFolder, user: UserFact | None) -> list[WeakSpot]:
    """Return what is wrong on the way to a cache; by owner and mode alone where nobody looked.

    Who owns the folder itself is another check's.
    """
    if folder.steps and user:
        last = folder.steps[-1].path
        spots = weak_steps(folder.steps, uid=user.uid)
        is_judged = folder.kind in _VARIABLES
        return [spot for spot in spots if spot.is_open or spot.path != last or not is_judged]
    owner = folder.owner
    if owner is None or owner.mode is None:
        return []
    step = PathStep(path=folder.path, uid=owner.uid or 0, mode=owner.mode)
    return [spot for spot in weak_steps([step], uid=step.uid) if spot.is_open]


def _open_spot(folder: CacheFolder, spot: WeakSpot) -> Problem:
    where = "" if spot.path == folder.path else f", on the way to the compile cache {folder.path}"
    return Problem(
        culprit=spot.path,
        severity=Severity.WARNING,
        message=f"{spot.message}{where or ': it is a compile cache'}",
        evidence=(Evidence(subject=spot.path, expected="0700", found=spot.message),),
        remedy=Remedy(
            kind="set-env",
            text="Take that permission away, or use a folder of your own.",
            commands=(spot.remedy,) if spot.remedy else (),
        ),
    )


@check(requires=["torch-not-installed"])
def cache_path_with_space(caches: CachesFact, nvidia: NvidiaFact, user: UserFact) -> Verdict:
    """The path of Inductor's cache falls apart on the command line of the C++ compiler.

    ## What it checks
    The path of Inductor's cache, and of its default folder below the one for temporary files, which
    it uses whatever TORCHINDUCTOR_CACHE_DIR says: no space, quote or backslash in it.

    ## Why it matters
    Inductor joins the compiler's arguments to one text, in which only the include folders are
    quoted, and takes it apart at its spaces. So torch.compile for the CPU ends in CppCompileError:
    "input file is the same as output file". Triton's kernels for GPUs are not concerned.

    ## Remedy
    Point TORCHINDUCTOR_CACHE_DIR, or TMPDIR, at a folder whose path has none of them.

    ## Source
    torch/_inductor/cpp_builder.py of torch 2.10 to 2.13, get_command_line and _run_compile_cmd,
    read 2026-11-30, tried with 2.11 and 2.13; pytorch/pytorch#191010 for the library folders.
    """
    split = [
        _split(folder, user, matters=not nvidia.gpus)
        for folder in caches.folders
        if folder.kind in ("inductor", "headers") and _falls_apart(folder.path)
    ]
    return problems(split, Ok("the C++ compiler can be told of Inductor's cache"))


def _falls_apart(path: str) -> bool:
    """Tell whether a path is another one once the compiler's command line is taken apart."""
    try:
        return shlex.split(path) != [path]
    except ValueError:  # a quote that nothing closes
        return True


def _split(folder: CacheFolder, user: UserFact, *, matters: bool) -> Problem:
    parent = folder.path.rpartition("/")[0]
    if folder.variable:
        name, place = folder.variable, f"/tmp/torchinductor-{user.uid}"
    elif _falls_apart(parent):
        name, place = "TMPDIR", "/tmp"
    else:  # it ends in the user's name
        name, place = "LOGNAME", f"user{user.uid}"
    return Problem(
        culprit=name,
        severity=Severity.WARNING if matters else Severity.INFO,
        message=f"torch.compile for the CPU fails: the C++ compiler takes {folder.path!r},"
        " which is not quoted, for several files",
        evidence=(
            Evidence(subject=name, expected="no space, quote or backslash", found=folder.path),
        ),
        remedy=Remedy(
            kind="set-env",
            text="Use a folder whose path has no space, quote or backslash.",
            commands=(f"export {name}={place}",),
        ),
    )


@check()
def stray_cache_left(caches: CachesFact) -> Verdict:
    """Serving engines left caches of compiled kernels.

    ## What it checks
    The caches of FlashInfer, vLLM, sglang and tvm-ffi below the home folder, or where their
    variables put them.

    ## Why it matters
    Training does not use them, and they can be large. They do no harm.

    ## Remedy
    Remove them if no other environment uses these engines.

    ## Source
    flashinfer/jit/env.py, read 2026-11-29; vLLM documentation, environment variables.
    """
    left = [folder for folder in caches.folders if folder.kind not in _COMPILERS]
    if not left:
        return Ok("none")
    names = ", ".join(folder.path for folder in left)
    return Problem(
        culprit=left[0].path,
        severity=Severity.INFO,
        message=f"caches of serving engines are left: {names}",
        evidence=tuple(Evidence(subject=folder.path, found=folder.kind) for folder in left),
        remedy=Remedy(
            kind="clear-cache",
            text="Remove them if no other environment uses these engines.",
            commands=tuple(f"rm -r {shlex.quote(folder.path)}" for folder in left),
        ),
    )
