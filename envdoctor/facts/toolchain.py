"""Readings of what torch.compile starts: C compiler, Python headers, ptxas; and of earlier runs."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class CompilerFact(Fact):
    """What Triton and Inductor build their helpers with.

    Args:
        path: The C compiler that they would take; None if there is none.
        wanted: Value of CC if that named a compiler that is not there; empty otherwise.
        include: Folder in which the interpreter's `Python.h` should lie; None if it is unknown.
        has_python_h: True if `Python.h` is there; None if its folder is unknown.
    """

    path: str | None
    wanted: str = ""
    include: str | None = None
    has_python_h: bool | None = None


@keyword_value
class Ptxas:
    """One PTX assembler that Triton may start.

    Args:
        path: The file.
        variable: Variable that names it; empty for the one that Triton brings.
        for_blackwell: True if Triton takes it for compute capability 10.0 and later only.
        release: CUDA release such as `12.8`, read from the file; empty if it was not found.
        error: Why Triton cannot start it; empty if it can.
    """

    path: str
    variable: str = ""
    for_blackwell: bool = False
    release: str = ""
    error: str = ""


@keyword_value
class PtxasFact(Fact):
    """The PTX assemblers that the environment's Triton would start.

    Args:
        tools: In the order in which Triton looks: variables first.
        spare: Others on the machine that a variable could name; looked for only where there is a
            GPU of compute capability 10.0 or later.
    """

    tools: tuple[Ptxas, ...] = ()
    spare: tuple[Ptxas, ...] = ()


@keyword_value
class RunRecord:
    """One failure that an earlier run or probe recorded.

    Args:
        source: Log file or name of the probe.
        text: What it says, in one line.
    """

    source: str
    text: str


@keyword_value
class LogRecordsFact(Fact):
    """Failures that the logs of earlier runs tell of, as far as such logs were named."""

    records: tuple[RunRecord, ...] = ()


@keyword_value
class ProbeRecordsFact(Fact):
    """Failures of probes that ran code of the environment."""

    records: tuple[RunRecord, ...] = ()
