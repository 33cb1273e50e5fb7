"""A tiny random target that says ASCII: bytes at random would be no text."""

from __future__ import annotations

import torch

from tests.train.tiny_run import make_model, make_tokenizer
from train.target import Target


def writing_target(*, says: str = "abcdefghij ", ends: float = 0.0, spaces: float = 0.0) -> Target:
    """Make it, the same at every call; it ends its turn about as often as it says a letter.

    Args:
        ends: Above 0 it ends its turn more often, below less.
        spaces: The same for the space.
        says: Letters that it writes.
    """
    model, tokenizer = make_model(), make_tokenizer()
    said = [tokenizer(letter)["input_ids"][0] for letter in says] + [tokenizer.eos_token_id]
    with torch.no_grad():
        # The first feature is the same everywhere, so that its weight in the head is a bias.
        model.get_input_embeddings().weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        head = model.lm_head.weight
        head[:, 0] = -100.0
        head[said, 0] = 0.0
        head[tokenizer.eos_token_id, 0] = ends
        if " " in says:
            head[tokenizer(" ")["input_ids"], 0] = spaces
    return Target(model, tokenizer, layer_ids=(1,))
