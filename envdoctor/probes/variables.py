"""Read the environment variables that change how an environment behaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.facts import FactSet, VariablesFact

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject

_PREFIXES = (
    "CONDA_", "CUDA_", "CUDNN_", "FLASHINFER_", "GLOO_", "KMP_", "LD_", "NCCL_", "NVIDIA_",
    "NVSHMEM_", "OMP_", "PYTHON", "PYTORCH_", "TORCH", "TRITON_", "UCX_",
)  # fmt: skip
_EXACTLY = frozenset(
    {
        "CC", "CXX", "HOME", "LNAME", "LOGNAME", "PATH", "TMPDIR", "TP_SOCKET_IFNAME", "USER",
        "USERNAME", "VIRTUAL_ENV", "XDG_CACHE_HOME",
    }
)  # fmt: skip


def read_variables(subject: Subject, facts: FactSet) -> VariablesFact:
    """Keep the variables that matter; others may hold secrets and decide nothing here."""
    del facts
    return VariablesFact(
        values=tuple(
            sorted((name, value) for name, value in subject.variables.items() if matters(name))
        )
    )


def matters(name: str) -> bool:
    """Tell whether a variable changes how Python, the loader, CUDA or torch behave."""
    return name in _EXACTLY or name.startswith(_PREFIXES)
