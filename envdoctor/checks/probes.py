"""Checks of what `import torch` did in the environment's own interpreter (`--probe`)."""

from __future__ import annotations

import re

from envdoctor.check import check, problems
from envdoctor.checks.endings import evidence_of, how_it_ended, not_judged
from envdoctor.facts import (
    ComputeProbeFact,
    DistributionsFact,
    ImportProbeFact,
    LoadedLibrary,
    NvidiaFact,
    PolicyFact,
    ProbeRun,
    SharedObjectsFact,
)
from envdoctor.reinstalls import reinstall
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

WRONG_LIBRARIES = (
    "package-files-damaged",
    "package-files-overwritten",
    "package-version-not-pinned",
    "library-shadowed",
    "cudnn-from-two-places",
)
"""Checks whose error means that another library runs than the one torch was built with."""

_MORE_MEMORY = Remedy(
    kind="container-option",
    text="Allow more memory, or see in the kernel's log (dmesg) who ended it and why.",
)
_LIBRARY = re.compile(r"\blib[\w+-]+\.so[.\d]*\b")
_MODULE = re.compile(r"No module named '([\w.]+)'")


@check(
    requires=["torch-not-installed"],
    follows_from=[
        *WRONG_LIBRARIES,
        "venv-python-gone",
        "venv-python-changed",
        "python-home-set",
        "required-package-missing",
        "package-without-libraries",
        "package-for-another-python",
        "needed-library-not-found",
        "lib-lib64-split",
        "libstdcxx-too-old",
        "glibc-too-old",
        "module-shadowed",
        "namespace-package-closed",
        "torch-of-conda-and-pip",
    ],
)
def torch_import_fails(
    probe: ImportProbeFact,
    installed: DistributionsFact,
    libraries: SharedObjectsFact,
    policy: PolicyFact,
) -> Verdict:
    """`import torch` fails in the environment's own interpreter.

    ## What it checks
    With `--probe`: a new process imports torch. It may raise, be ended by a signal, or hang; or the
    environment's Python does not get as far as that.

    ## Why it matters
    Nothing of torch works. The other checks look at what the files promise; this shows what they
    add up to.

    ## Remedy
    Start from the library or module that the message names. If no other check finds a cause,
    compare every byte of every package, then build the environment anew.

    ## Source
    A truncated library ends a process with SIGBUS, a missing cuDNN sub-library with SIGABRT:
    measured on copies of torch 2.14.1+cu130, 2026-11-29.
    """
    if verdict := not_judged(probe.run):
        return verdict
    if probe.run.status == "passed":
        return Ok(f"torch {probe.torch} imports in {probe.import_seconds:.1f} s")
    if not probe.run.step:
        return _python_that_does_not_start(probe.run, policy)
    named = _named(probe.run)
    owners = (
        item.distribution for item in libraries.objects if item.path.endswith(f"/{named}") and named
    )
    owner = next(owners, "torch")
    command = reinstall(policy, [(owner, installed.version_of(owner))])
    return Problem(
        culprit=named or "torch",
        message=f"import torch {how_it_ended(probe.run)}",
        evidence=tuple(evidence_of(probe.run)),
        remedy=_MORE_MEMORY if probe.run.reason == "SIGKILL" else _anew(probe.run, owner, command),
    )


@check(
    requires=["torch-import-fails"],
    follows_from=[
        "no-nvidia-driver",
        "driver-library-mismatch",
        "driver-too-old-for-cuda",
        "gpu-fabric-not-ready",
        "visible-device-not-found",
        "libcuda-missing",
        "libcuda-is-stub",
        "libcuda-shadowed",
        "cuda-does-not-start",
    ],
)
def torch_sees_no_gpu(probe: ImportProbeFact, nvidia: NvidiaFact) -> Verdict:
    """Torch is a CUDA build, a GPU is there, and yet torch sees none.

    ## What it checks
    With `--probe`: `torch.cuda.is_available()` where the machine has an NVIDIA device, and what
    `torch.cuda.init()` says.

    ## Why it matters
    torch falls back to the CPU, in many programs without a word.

    ## Remedy
    What torch says. If it says nothing, look for CUDA_VISIBLE_DEVICES, and for code that runs at
    the start of the interpreter.

    ## Source
    torch/cuda/__init__.py of torch 2.9.1 to 2.15.0, read 2026-11-29.
    """
    if verdict := not_judged(probe.run):
        return verdict
    if probe.cuda is None:
        return Skipped("torch is not a CUDA build")
    if probe.cuda_available:
        return Ok(f"torch sees {probe.num_devices} GPUs")
    if nvidia.num_devices == 0:
        return Skipped("no NVIDIA device here")
    said = probe.cuda_error.partition("\n")[0] or "it does not say why"
    return Problem(
        culprit="torch.cuda",
        message=f"{nvidia.num_devices} NVIDIA device(s), but torch sees none: {said}",
        evidence=(
            Evidence(
                subject="cuDeviceGetCount",
                expected=str(nvidia.num_devices),
                found=str(probe.driver_devices),
            ),
            Evidence(subject="torch.cuda.is_available()", expected="True", found="False"),
        ),
        remedy=Remedy(
            kind="unset-env",
            text="Unset CUDA_VISIBLE_DEVICES and what else hides GPUs from this process.",
        ),
    )


@check(requires=["torch-import-fails"], follows_from=WRONG_LIBRARIES)
def cudnn_refused_by_torch(
    probe: ImportProbeFact, installed: DistributionsFact, policy: PolicyFact
) -> Verdict:
    """Torch refuses the cuDNN that it finds.

    ## What it checks
    With `--probe`: whether `torch.backends.cudnn.version()` raises.

    ## Why it matters
    `import torch` passes; the first convolution fails. The library that was loaded is of another
    version than torch was built with, as after another package has overwritten it.

    ## Remedy
    Reinstall the cuDNN package that torch pins, and keep others off the loader's path.

    ## Source
    torch/backends/cudnn/__init__.py of torch 2.9.1 to 2.15.0, read 2026-11-29.
    """
    if verdict := not_judged(probe.run):
        return verdict
    if not probe.cudnn_error:
        return Ok(f"cuDNN {probe.cudnn}" if probe.cudnn else "this build has no cuDNN")
    owners = [
        (dist.name, dist.version)
        for dist in installed.distributions
        if dist.name.startswith("nvidia-cudnn")
    ]
    command = reinstall(policy, owners[:1])
    return Problem(
        culprit="cuDNN",
        message=f"torch refuses cuDNN: {probe.cudnn_error.partition(chr(10))[0]}",
        evidence=tuple(
            Evidence(subject=item.path, found="loaded")
            for item in probe.libraries
            if item.name.startswith("libcudnn")
        ),
        remedy=Remedy(
            kind="reinstall-package",
            text="Reinstall the cuDNN that torch pins.",
            commands=(command,) if command else (),
        ),
    )


@check(requires=["torch-import-fails"], follows_from=WRONG_LIBRARIES)
def library_loaded_from_elsewhere(imported: ImportProbeFact, compute: ComputeProbeFact) -> Verdict:
    """A library was loaded from another place than the files foretell.

    ## What it checks
    With `--probe`: the libraries of torch and NVIDIA in the process's memory map, against where the
    static reading of the loader's rules expects each.

    ## Why it matters
    A library of another version was taken, by a rule that was not seen: a `.pth` file or
    `sitecustomize` that opens libraries, a wrapper around the interpreter, LD_AUDIT. What the other
    checks say of that library is not about the one in use.

    ## Remedy
    Find what loads it (`LD_DEBUG=libs`), and take it out of the way.

    ## Source
    proc(5), /proc/PID/maps; ld.so(8).
    """
    if verdict := not_judged(imported.run):
        return verdict
    loaded = {item.path: item for item in (*imported.libraries, *compute.libraries)}
    foretold = [item for item in loaded.values() if item.predicted]
    if not foretold:
        return Skipped("no place was foretold for any library")
    elsewhere = [_elsewhere(item) for item in foretold if item.path != item.predicted]
    return problems(
        elsewhere, otherwise=Ok(f"{len(foretold)} libraries were loaded from where they should be")
    )


def _elsewhere(item: LoadedLibrary) -> Problem:
    return Problem(
        culprit=item.path,
        severity=Severity.WARNING,
        message=f"{item.name} was loaded from {item.path}, not from {item.predicted}",
        evidence=(Evidence(subject=item.name, expected=item.predicted, found=item.path),),
        remedy=Remedy(
            kind="remove-from-loader-path",
            text="Find what loads it with LD_DEBUG=libs, and take it out of the way.",
        ),
    )


def _anew(run: ProbeRun, owner: str, command: str | None) -> Remedy:
    patience = "If the disk is slow, allow more time (--probe-timeout). "
    return Remedy(
        kind="reinstall-package",
        text=f"{patience if run.status == 'timed_out' else ''}Reinstall {owner}; if that does not "
        "help, build the environment anew.",
        commands=(command,) if command else (),
    )


def _python_that_does_not_start(run: ProbeRun, policy: PolicyFact) -> Problem:
    """Blame Python for a program that did not come to its first line."""
    rebuild = (f"envdoctor build --profile {policy.profile}",) if policy.profile else ()
    return Problem(
        culprit="bin/python",
        message=f"the environment's Python, started to import torch, {how_it_ended(run)}",
        evidence=tuple(evidence_of(run)),
        remedy=Remedy(
            kind="recreate-venv",
            text="Cure what that names, or make the environment anew.",
            commands=rebuild,
        ),
    )


def _named(run: ProbeRun) -> str:
    """Return the library or module that a message names; empty if it names none."""
    if library := _LIBRARY.search(run.reason):
        return library[0]
    module = _MODULE.search(run.reason)
    return module[1] if module else ""
