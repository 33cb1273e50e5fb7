"""What a training consists of, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from train.features import FeatureStore
from train.optimizer import build_optimizer
from train.plan import plan_of
from train.windows import DataOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from train.config import TrainConfig
    from train.data import Sample
    from train.drafter import Drafter
    from train.optimizer import Optimizer
    from train.plan import Origin, Plan
    from train.target import Target


@dataclass(frozen=True)
class Pair:
    """The two models, on one device."""

    target: Target
    drafter: Drafter


class Stateful(Protocol):
    """A part of a training that is saved and restored."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state: tensors and plain values only."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go on from what `state_dict` gave."""
        ...


@dataclass(frozen=True)
class Course:
    """The parts that the loop moves.

    Attributes:
        config: The run.
        pair: The target, and the drafter that is trained in place.
        samples: What to train on.
        optimizer: Of the drafter's parameters.
        store: Gives the target's states.
        plan: How many steps there are, and what each is about.
        first_step: Steps that were taken before, by an interrupted run.
        average: Moving average of the drafter's weights; None when `train.ema_decay` is 0.
    """

    config: TrainConfig
    pair: Pair
    samples: Sequence[Sample]
    optimizer: Optimizer
    store: FeatureStore
    plan: Plan
    first_step: int = 0
    average: AveragedModel | None = None

    @property
    def trained_drafter(self) -> Drafter:
        """What is measured and saved: the average where one is kept, else the drafter itself."""
        return self.pair.drafter if self.average is None else cast("Drafter", self.average.module)

    @classmethod
    def of(
        cls,
        config: TrainConfig,
        *,
        pair: Pair,
        samples: Sequence[Sample],
        first_step: int = 0,
        origin: Origin | None = None,
    ) -> Course:
        """Make the optimizer, and count the steps."""
        settings = config.train
        optimizer = build_optimizer(
            pair.drafter,
            kind=settings.optimizer,
            peak_lr=settings.peak_lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
        average = None
        if settings.ema_decay:
            # Its first update copies the weights, so those before the first step do not count.
            follow: Any = get_ema_multi_avg_fn
            average = AveragedModel(pair.drafter, multi_avg_fn=follow(settings.ema_decay))
        store = FeatureStore(
            pair.target,
            budget_bytes=settings.cache_features_bytes,
            with_final=config.distills,
        )
        plan = plan_of(samples, config, origin=origin)
        return cls(config, pair, samples, optimizer, store, plan, first_step, average)

    @property
    def order(self) -> DataOrder:
        """The order of the data."""
        return DataOrder(self.config, self.samples, self.pair.target.eos_id, self.plan)

    def stateful(self) -> dict[str, Stateful]:
        """Return what a checkpoint holds beside the drafter's float32 weights, by name."""
        parts: dict[str, Stateful] = {"optimizer": self.optimizer}
        return parts if self.average is None else {**parts, "average": self.average}
