"""What torch.compile has done in this process so far, by torch's own counters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch._dynamo.utils import counters, get_compilation_metrics


class RecompiledError(RuntimeError):
    """Something was compiled after the warm-up, by which everything should have been."""


@dataclass(frozen=True)
class Compilations:
    """Counts of one process.

    A graph that the cache on disk holds is still traced once in every process, which takes seconds;
    only its kernels are not made anew.

    Attributes:
        num_graphs: Graphs that were traced, each for one set of shapes and types.
        num_kernels_cached: Forward and backward graphs whose kernels came from the cache on disk.
        num_kernels_new: Forward and backward graphs whose kernels were generated and compiled.
        num_kernels_uncached: Those that were compiled and cannot be cached.
        num_traces_cached: Graphs whose derivative came from the cache on disk.
        num_traces_new: Graphs whose derivative was traced anew.
    """

    num_graphs: int = 0
    num_kernels_cached: int = 0
    num_kernels_new: int = 0
    num_kernels_uncached: int = 0
    num_traces_cached: int = 0
    num_traces_new: int = 0

    def __sub__(self, earlier: Compilations) -> Compilations:
        """Return what was compiled since an earlier reading."""
        now, then = asdict(self), asdict(earlier)
        return Compilations(**{name: now[name] - then[name] for name in now})

    @property
    def num_new(self) -> int:
        """Graphs for which code was made: all of them where no cache was asked."""
        was_asked = self.num_kernels_cached + self.num_kernels_new + self.num_kernels_uncached
        made = self.num_kernels_new + self.num_kernels_uncached
        return made if was_asked else self.num_graphs

    def summary(self) -> dict[str, int]:
        """Return the counts as JSON-able data."""
        return {**asdict(self), "num_new": self.num_new}


def compilations() -> Compilations:
    """Read the counters of this process."""
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    return Compilations(
        num_graphs=int(counters["stats"]["unique_graphs"]),
        num_kernels_cached=int(inductor["fxgraph_cache_hit"]),
        num_kernels_new=int(inductor["fxgraph_cache_miss"]),
        num_kernels_uncached=int(inductor["fxgraph_cache_bypass"]),
        num_traces_cached=int(autograd["autograd_cache_hit"]),
        num_traces_new=int(autograd["autograd_cache_miss"] + autograd["autograd_cache_bypass"]),
    )


class CompileWatch:
    """Holds a run to what it compiled in its warm-up."""

    def __init__(self) -> None:
        self._begun = compilations()
        self._warm: Compilations | None = None

    def seal(self) -> None:
        """Declare the warm-up over: from here on nothing may be compiled."""
        self._warm = compilations()

    def check(self) -> None:
        """Look whether anything was compiled since the warm-up.

        Raises:
            RecompiledError: It was; names what torch says of the reason.
        """
        since = self._since_warm_up()
        if since.num_graphs or since.num_new:
            raise RecompiledError(
                f"torch compiled {max(since.num_graphs, since.num_new)} more graph(s) after the "
                f"warm-up, which knew every shape of the run{_reason()}"
            )

    def summary(self) -> dict[str, Any]:
        """Return what the run has compiled, in all and since the warm-up, as JSON-able data."""
        return {
            "compiled": (compilations() - self._begun).summary(),
            "compiled_after_warm_up": self._since_warm_up().summary(),
        }

    def _since_warm_up(self) -> Compilations:
        return Compilations() if self._warm is None else compilations() - self._warm


def _reason() -> str:
    """Return what torch says of the last compilation: which function, and which guard failed."""
    found = get_compilation_metrics()
    if not found:
        return ""
    last = found[-1]
    why = " ".join((last.recompile_reason or "it was never called before").split())
    return f": {last.co_name or 'a function'}, {why}"
