"""Checks of libraries and installers that meet in one environment."""

from __future__ import annotations

from pathlib import PurePath

from envdoctor.check import check
from envdoctor.facts import (
    CondaFact,
    DistributionsFact,
    OpenMpFact,
    PolicyFact,
    VariablesFact,
)
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict


@check()
def torch_of_conda_and_pip(
    conda: CondaFact, installed: DistributionsFact, policy: PolicyFact
) -> Verdict:
    """Torch was installed by conda, and by pip over it.

    ## What it checks
    conda's records in `conda-meta`, against a torch that pip or uv installed.

    ## Why it matters
    Both put their files into one place: conda's libraries stay beside those of the wheel, and the
    next update or removal by one of them takes files of the other.

    ## Remedy
    Keep one: remove conda's packages, then reinstall the wheel; or the other way round.

    ## Source
    Anaconda, "Using pip in a conda environment"; pytorch/pytorch#157709.
    """
    torch = installed.find("torch")
    by_wheel = torch is not None and torch.installer in {"pip", "uv"}
    if torch is None or not by_wheel or not conda.packages:
        return Ok("torch has one installer")
    names = ", ".join(f"{name} {version}" for name, version in conda.packages)
    return Problem(
        culprit="torch",
        severity=Severity.WARNING,
        message=f"torch {torch.version} was installed by {torch.installer} over conda's {names}",
        evidence=(
            Evidence(subject=torch.path, found=f"installed by {torch.installer}"),
            Evidence(subject="conda-meta", expected="no torch", found=names),
        ),
        remedy=Remedy(
            kind="uninstall-then-reinstall",
            text="Remove conda's packages, then reinstall the wheel, whose files go with them.",
            commands=(
                f"conda remove --force {' '.join(name for name, _ in conda.packages)}",
                f"{policy.pip_install} torch=={torch.version}",
            ),
        ),
    )


@check()
def two_openmp_runtimes(libraries: OpenMpFact, variables: VariablesFact) -> Verdict:
    """Two kinds of OpenMP runtime are in one environment.

    ## What it checks
    `libiomp5` or LLVM's `libomp` beside `libgomp`, where wheels and conda put them. Copies of one
    kind are normal: torch and numpy each bring their own.

    ## Why it matters
    Loaded into one process they start a pool of threads each, which costs speed and can hang after
    a fork; with KMP_DUPLICATE_LIB_OK set, the runtime's own warning about it is off.

    ## Remedy
    Remove the package that brings the second one (`intel-openmp`, `mkl`), if nothing needs it.

    ## Source
    Intel OpenMP runtime, KMP_DUPLICATE_LIB_OK; scikit-learn, "Parallelism" (threadpoolctl).
    """
    kinds: dict[str, list[str]] = {}
    for path in libraries.libraries:
        kind = PurePath(path).name.partition(".")[0].partition("-")[0]
        kinds.setdefault(kind, []).append(path)
    if len(kinds) < 2 or "libgomp" not in kinds:  # noqa: PLR2004  two kinds
        return Ok(f"OpenMP: {', '.join(kinds) or 'none of its own'}")
    silenced = variables.get("KMP_DUPLICATE_LIB_OK")
    other = next(paths[0] for kind, paths in kinds.items() if kind != "libgomp")
    return Problem(
        culprit=other,
        severity=Severity.WARNING if silenced else Severity.INFO,
        message=f"{other} is a second OpenMP runtime beside {kinds['libgomp'][0]}"
        + (f"; KMP_DUPLICATE_LIB_OK={silenced} hides it" if silenced else ""),
        evidence=tuple(Evidence(subject=paths[0], found=kind) for kind, paths in kinds.items()),
        remedy=Remedy(
            kind="uninstall-package",
            text="Remove the package that brings it, if nothing needs it.",
        ),
    )
