"""A tiny random target and drafters for it; nothing here reads a file or the network."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from train.anchors import anchor_keys
from train.drafter import Drafter
from train.drafter_config import DrafterConfig, drafter_config_for
from train.frozen_target import TargetStates, View
from train.layer_ids import tapped_layer_ids
from train.objective import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from transformers import Cache

VOCABULARY = 61
MASK = VOCABULARY - 1
LAYERS = 6


class TinyTarget:
    """The target interface over `output_hidden_states`, an independent way to the same states."""

    def __init__(self, model: LlamaForCausalLM, *, layer_ids: tuple[int, ...]) -> None:
        self.model: Any = model
        self.layer_ids = layer_ids

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    def embed(self, ids_BT: Tensor) -> Tensor:
        embedded: Tensor = self.model.model.embed_tokens(ids_BT)
        return embedded

    def logits(self, final_D: Tensor) -> Tensor:
        logits: Tensor = self.model.lm_head(final_D)
        return logits

    @torch.no_grad()
    def states(
        self, ids_BT: Tensor, *, cache: Cache | None = None, view: View | None = None
    ) -> TargetStates:
        decoder = self.model.model
        # transformers 5.2x renamed the argument, and warns about the old name.
        is_renamed = "cache" in inspect.signature(decoder.forward).parameters
        output = decoder(
            ids_BT,
            use_cache=cache is not None,
            output_hidden_states=True,
            position_ids=None if view is None else view.positions_BT,
            attention_mask=None if view is None else view.visible_BTS[:, None],
            **{"cache" if is_renamed else "past_key_values": cache},
        )
        tapped = [output.hidden_states[layer + 1] for layer in self.layer_ids]
        return TargetStates(output.last_hidden_state, tapped_BTF=torch.cat(tapped, dim=-1))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Two threads take turns on matrices this small, several times slower on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def target() -> TinyTarget:
    """A random Llama whose greedy text wanders, and whose head maps each of its rows to itself."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).train(mode=False).requires_grad_(requires_grad=False)
    head = model.lm_head.weight
    head.copy_(4.0 * torch.nn.functional.normalize(head, dim=-1))
    return TinyTarget(model, layer_ids=tapped_layer_ids(LAYERS, 3))


@pytest.fixture
def drafter_of(target: TinyTarget) -> Callable[..., Drafter]:
    """Make a seeded random drafter of the tiny target; keywords change its config."""

    def make(
        block_size: int = 4, *, num_layers: int = 2, checkpoint_layers: bool = False
    ) -> Drafter:
        torch.manual_seed(1)
        config = tiny_config(target, block_size=block_size, num_layers=num_layers)
        return Drafter(config, checkpoint_layers=checkpoint_layers)

    return make


def tiny_config(
    target: TinyTarget, *, block_size: int, num_layers: int = 2, mask_token_id: int = MASK
) -> DrafterConfig:
    return drafter_config_for(
        target.model.config,
        num_layers=num_layers,
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=target.layer_ids,
    )


@pytest.fixture
def rows_of(target: TinyTarget) -> Callable[..., Rows]:
    """Make rows of random tokens with the target's states; the first tokens are the prompt."""

    def make(num_rows: int = 2, num_tokens: int = 24, *, prompt: int = 5, seed: int = 0) -> Rows:
        generator = torch.Generator().manual_seed(seed)
        ids_BS = torch.randint(0, MASK, (num_rows, num_tokens), generator=generator)
        return Rows(
            ids_BS=ids_BS,
            loss_mask_BS=(torch.arange(num_tokens) >= prompt).expand(num_rows, -1),
            keys_BS=keys(num_rows, num_tokens, seed=seed),
            target_hidden_BSF=target.states(ids_BS).tapped_BTF,
        )

    return make


def keys(num_rows: int, num_tokens: int, *, seed: int = 0, epoch: int = 0) -> Tensor:
    return torch.stack(
        [
            anchor_keys(num_tokens, seed=seed, epoch=epoch, sample_index=index)
            for index in range(num_rows)
        ]
    )
