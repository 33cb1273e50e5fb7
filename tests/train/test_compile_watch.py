from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from train.compile_watch import Compilations, CompileWatch, RecompiledError, compilations


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def test_a_shape_that_was_not_warmed_up_stops_the_run_with_its_reason() -> None:
    compiled = torch.compile(doubled, backend="eager", dynamic=False)
    watch = CompileWatch()
    for length in (4, 8):
        compiled(torch.ones(length))
    watch.seal()
    for length in (8, 4, 8):
        compiled(torch.ones(length))
        watch.check()
    assert watch.summary()["compiled"]["num_graphs"] == 2
    assert watch.summary()["compiled_after_warm_up"] == Compilations().summary()
    compiled(torch.ones(6))
    with pytest.raises(RecompiledError, match=r"1 more graph\(s\).* doubled, .*size mismatch"):
        watch.check()
    assert watch.summary()["compiled_after_warm_up"]["num_graphs"] == 1


def test_a_function_that_nobody_warmed_up_stops_the_run() -> None:
    watch = CompileWatch()
    watch.seal()
    torch.compile(doubled, backend="eager")(torch.ones(3))
    with pytest.raises(RecompiledError, match="doubled, it was never called before"):
        watch.check()


def test_nothing_stops_a_run_before_the_warm_up_is_over() -> None:
    watch = CompileWatch()
    torch.compile(doubled, backend="eager")(torch.ones(3))
    watch.check()


def test_gradients_count_as_another_graph() -> None:
    compiled = torch.compile(doubled, backend="eager", dynamic=False)
    compiled(torch.ones(3, requires_grad=True))
    watch = CompileWatch()
    watch.seal()
    with torch.no_grad():
        compiled(torch.ones(3, requires_grad=True))
    with pytest.raises(RecompiledError, match="grad_mode"):
        watch.check()


@pytest.mark.parametrize(
    ("counts", "num_new"),
    [
        pytest.param(Compilations(num_graphs=3), 3, id="no-cache-was-asked"),
        pytest.param(Compilations(num_graphs=3, num_kernels_cached=6), 0, id="all-from-the-cache"),
        pytest.param(
            Compilations(num_graphs=3, num_kernels_cached=4, num_kernels_new=2), 2, id="some-new"
        ),
        pytest.param(Compilations(num_graphs=1, num_kernels_uncached=2), 2, id="cannot-be-cached"),
        pytest.param(Compilations(), 0, id="nothing"),
    ],
)
def test_what_was_made_anew(counts: Compilations, num_new: int) -> None:
    assert counts.num_new == num_new
    assert counts.summary()["num_new"] == num_new


def test_counts_are_those_of_torch() -> None:
    before = compilations()
    counters["inductor"]["fxgraph_cache_miss"] += 2
    counters["aot_autograd"]["autograd_cache_hit"] += 3
    assert compilations() - before == Compilations(num_kernels_new=2, num_traces_cached=3)
