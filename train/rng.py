"""The random state of a process, as plain values and tensors that need no unpickling of code."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of Python's, numpy's and torch's generators, the device's included."""
    version, words, gauss = random.getstate()
    numpy: dict[str, Any] = np.random.get_state(legacy=False)  # noqa: NPY002
    keys = numpy["state"]["key"].tolist()
    return {
        "python": (version, list(words), gauss),
        "numpy": {**numpy, "state": {**numpy["state"], "key": keys}},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Go on drawing where `random_state` was taken.

    Args:
        state: From `random_state`.
        device: Its generator is left alone when the state is of a run without a GPU.
    """
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    keys = np.array(state["numpy"]["state"]["key"], dtype=np.uint32)
    np.random.set_state(  # noqa: NPY002  whoever draws from it would not know another generator
        {**state["numpy"], "state": {**state["numpy"]["state"], "key": keys}}
    )
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
