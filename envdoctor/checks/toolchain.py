"""Checks of what torch.compile needs of the machine: compiler, Python headers, a user's name."""

from __future__ import annotations

import re

from envdoctor.check import check
from envdoctor.checks.ptxas import NO_TRITON, compiles_for_gpu
from envdoctor.facts import (
    CompilerFact,
    ContainerFact,
    DistributionsFact,
    InterpreterFact,
    NvidiaFact,
    TorchBuildFact,
    UserFact,
    VariablesFact,
)
from envdoctor.verdict import Evidence, Ok, Owner, Problem, Remedy, Skipped, Verdict

_NAMED_USER_SINCE = (2, 13)
_USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Where Python looks for a user's name before the user database. Source: getpass.getuser."""


@check(requires=["torch-not-installed"])
def no_c_compiler(
    compiler: CompilerFact,
    nvidia: NvidiaFact,
    installed: DistributionsFact,
    container: ContainerFact,
) -> Verdict:
    """Triton finds no C compiler.

    ## What it checks
    CC, else gcc, else clang on PATH, as Triton looks for them; only where there is a GPU and
    Triton is installed.

    ## Why it matters
    Triton builds a small library before its first kernel: the first call of a compiled function
    stops with "Failed to find C compiler".

    ## Remedy
    Install gcc, or let CC name a compiler that is here.

    ## Source
    triton/runtime/build.py 3.5 to 3.9, read 2026-11-29.
    """
    if not compiles_for_gpu(nvidia, installed):
        return Skipped(NO_TRITON)
    if compiler.path is not None:
        return Ok(compiler.path)
    wrong = compiler.wanted
    command = "unset CC" if wrong else _install("gcc", container)
    return Problem(
        culprit="CC" if wrong else "gcc",
        owner="user" if wrong else _owner(container),
        message=f"CC names {wrong}, which is not here, so Triton cannot build its helpers"
        if wrong
        else "there is no C compiler (gcc or clang on PATH), so Triton cannot build its helpers",
        evidence=(
            Evidence(
                subject="CC" if wrong else "gcc, clang on PATH",
                expected="a compiler",
                found=wrong or "none",
            ),
        ),
        remedy=Remedy(
            kind="unset-env" if wrong else "install-system-package",
            text="Let CC name a compiler that is here, or unset it." if wrong else "Install gcc.",
            commands=(command,),
        ),
    )


@check(requires=["torch-not-installed"])
def python_headers_missing(
    compiler: CompilerFact,
    interpreter: InterpreterFact,
    nvidia: NvidiaFact,
    installed: DistributionsFact,
    container: ContainerFact,
) -> Verdict:
    """Python.h of the environment's interpreter is missing.

    ## What it checks
    `Python.h` in the folder that the interpreter's sysconfig names; only where there is a GPU and
    Triton is installed.

    ## Why it matters
    Triton compiles a Python module before its first kernel: the first call of a compiled function
    stops with "Python.h: No such file or directory", although gcc is there.

    ## Remedy
    Install the development package of this very Python version, or take a Python that brings its
    headers, as those of uv and conda do.

    ## Source
    sgl-project/sglang#18644; pytorch/pytorch#129351.
    """
    if not compiles_for_gpu(nvidia, installed):
        return Skipped(NO_TRITON)
    if compiler.has_python_h is None:
        return Skipped("the folder of Python.h is unknown")
    if compiler.has_python_h:
        return Ok(f"{compiler.include or 'the include folder'} holds Python.h")
    minor = ".".join(interpreter.version.split(".")[:2])
    where = compiler.include or f"include/python{minor}"
    return Problem(
        culprit="Python.h",
        owner=_owner(container),
        message=f"{where}/Python.h is missing: Triton cannot compile its helpers for "
        f"Python {minor}",
        evidence=(Evidence(subject=f"{where}/Python.h", expected="a file", found="missing"),),
        remedy=Remedy(
            kind="install-system-package",
            text=f"Install python{minor}-dev (Fedora: python{minor}-devel), or build the "
            "environment on a Python that brings its headers, as those of uv do.",
            commands=(_install(f"python{minor}-dev", container),),
        ),
    )


def _owner(container: ContainerFact) -> Owner:
    return "image" if container.kind else "admin"


def _install(package: str, container: ContainerFact) -> str:
    return f"{'' if container.kind else 'sudo '}apt-get install -y {package}"


@check(requires=["torch-not-installed"])
def user_without_name(
    user: UserFact, variables: VariablesFact, torch_build: TorchBuildFact
) -> Verdict:
    """The user has no name, and this torch needs one for its cache.

    ## What it checks
    Whether the user's id has an entry in the user database, or a variable names the user, where
    torch is older than 2.13 and TORCHINDUCTOR_CACHE_DIR does not name a cache.

    ## Why it matters
    Containers that run under an arbitrary id have no entry: torch.compile stops with "getpwuid():
    uid not found" before it compiles anything.

    ## Remedy
    Name the cache's folder, or the user.

    ## Source
    torch/_inductor/runtime/cache_dir_utils.py 2.9.1 to 2.13.0, read 2026-11-29.
    """
    if user.has_passwd_entry:
        return Ok(f"user {user.uid} has an entry in the user database")
    named = next((name for name in _USER_VARIABLES if variables.get(name)), None)
    if named or variables.get("TORCHINDUCTOR_CACHE_DIR"):
        return Ok(f"{named or 'TORCHINDUCTOR_CACHE_DIR'} is set")
    if _numbers(torch_build.version or "")[:2] >= _NAMED_USER_SINCE:
        return Ok(f"torch {torch_build.version} does without a name")
    return Problem(
        culprit=f"uid {user.uid}",
        message=f"user id {user.uid} has no entry in the user database (getpwuid), and torch "
        f"{torch_build.version} needs its name for the compile cache",
        evidence=(Evidence(subject="/etc/passwd", expected=f"uid {user.uid}", found="no entry"),),
        remedy=Remedy(
            kind="set-env",
            text="Name the cache's folder and the user, or start the container with an entry.",
            commands=(
                f"export LOGNAME=user{user.uid}",
                f"export TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor_{user.uid}",
            ),
        ),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
