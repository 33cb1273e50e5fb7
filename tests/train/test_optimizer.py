from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from train.optimizer import build_optimizer, set_learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from train.drafter import Drafter


def test_every_parameter_is_stepped_and_norms_are_not_decayed(
    drafter_of: Callable[..., Drafter],
) -> None:
    drafter = drafter_of()
    before = {name: p.detach().clone() for name, p in drafter.named_parameters()}
    optimizer = build_optimizer(drafter, peak_lr=0.5, weight_decay=0.1)
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
