from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Literal

import pytest
import torch

from train.optimizer import build_optimizer, set_learning_rate
from train.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.drafter import Drafter
    from train.optimizer import Optimizer

Kind = Literal["adamw", "muon"]
both_kinds = pytest.mark.parametrize("kind", ["adamw", "muon"])


@both_kinds
def test_every_parameter_is_stepped_and_norms_are_not_decayed(
    drafter_of: Callable[..., Drafter], kind: Kind
) -> None:
    drafter = drafter_of()
    before = {name: p.detach().clone() for name, p in drafter.named_parameters()}
    optimizer = build_optimizer(drafter, peak_lr=0.5, kind=kind, weight_decay=0.1)
    set_learning_rate(optimizer, 0.25)
    for parameter in drafter.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in drafter.named_parameters():
        kept = 1.0 if parameter.dim() == 1 else 1.0 - 0.25 * 0.1
        torch.testing.assert_close(parameter.detach(), kept * before[name], msg=name)


def test_a_step_smaller_than_bfloat16_resolves_is_kept(drafter_of: Callable[..., Drafter]) -> None:
    drafter = drafter_of()
    optimizer = build_optimizer(drafter, peak_lr=1e-5)
    norm = drafter.norm.weight
    norm.grad = torch.ones_like(norm)
    optimizer.step()
    assert torch.equal(norm.bfloat16(), torch.ones_like(norm).bfloat16())
    assert (norm < 1).all()


def test_low_precision_parameters_are_refused(drafter_of: Callable[..., Drafter]) -> None:
    with pytest.raises(TypeError, match=r"fc\.weight is torch\.bfloat16"):
        build_optimizer(drafter_of().bfloat16(), peak_lr=1e-3)


def orthogonalised(gradient: torch.Tensor) -> torch.Tensor:
    """Return Muon's direction in float64: five steps of Keller Jordan's quintic iteration."""
    is_tall = gradient.shape[0] > gradient.shape[1]
    x: torch.Tensor = (gradient.T if is_tall else gradient).double()
    x /= x.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if is_tall else x


def test_muon_steps_matrices_as_far_as_adamw_would(drafter_of: Callable[..., Drafter]) -> None:
    drafter = drafter_of()
    optimizer = build_optimizer(drafter, peak_lr=0.01, kind="muon")
    before = {name: p.detach().clone() for name, p in drafter.named_parameters()}
    gradients = {name: torch.randn_like(p) for name, p in drafter.named_parameters()}
    for name, parameter in drafter.named_parameters():
        parameter.grad = gradients[name].clone()
    optimizer.step()
    for name, parameter in drafter.named_parameters():
        step = (before[name] - parameter.detach()).double()
        if parameter.dim() == 1:
            # The first step of AdamW is the sign of the gradient.
            wanted = 0.01 * gradients[name].sign().double()
            torch.testing.assert_close(step, wanted, rtol=1e-3, atol=1e-5)
            continue
        # The first momentum is a multiple of the gradient, which the iteration does not see.
        scale = 0.01 * 0.2 * math.sqrt(max(parameter.shape))
        wanted = scale * orthogonalised(gradients[name])
        # The iteration runs in bfloat16.
        assert (step - wanted).norm() < 0.05 * wanted.norm(), name


def steps(drafter: Drafter, optimizer: Optimizer, seeds: range) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for parameter in drafter.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@both_kinds
def test_a_saved_state_continues_bit_for_bit(
    drafter_of: Callable[..., Drafter], kind: Kind
) -> None:
    whole = drafter_of()
    steps(whole, build_optimizer(whole, peak_lr=0.01, kind=kind), range(5))
    first = drafter_of()
    optimizer = build_optimizer(first, peak_lr=0.01, kind=kind)
    steps(first, optimizer, range(3))
    file = io.BytesIO()
    torch.save({"drafter": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = drafter_of()
    resumed = build_optimizer(second, peak_lr=0.5, kind=kind)
    second.load_state_dict(saved["drafter"])
    resumed.load_state_dict(saved["optimizer"])
    steps(second, resumed, range(3, 5))
    for mine, yours in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, yours)


def test_muon_names_the_setting_where_torch_has_none(
    drafter_of: Callable[..., Drafter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ConfigError, match=r"train\.optimizer: muon needs torch 2\.9"):
        build_optimizer(drafter_of(), peak_lr=0.01, kind="muon")
