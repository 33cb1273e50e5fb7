"""A second reading of the serving formats, from the files alone; shares no code with the trainer.

It is slow on purpose: nothing is cached, and every round reads the whole text again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch.nn import functional

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


class IndependentReader:
    """A drafter read from a folder in either layout, with a model of transformers as its target."""

    def __init__(self, folder: Path, model: Any) -> None:
        self.model = model
        config = json.loads((folder / "config.json").read_text())
        self.weights = {n: t.float() for n, t in load_file(folder / "model.safetensors").items()}
        if config.get("speculators_model_type") == "dflash":
            self.layers = config["transformer_layer_config"]
            self.mask_id = config["mask_token_id"]
            # Numbered by the input that they take, as `hidden_states` of transformers is.
            self.states = config["aux_hidden_state_layer_ids"]
            self.table, self.head = (
                self.weights["embed_tokens.weight"],
                self.weights["lm_head.weight"],
            )
        else:
            self.layers = config
            self.mask_id = config["dflash_config"]["mask_token_id"]
            self.states = [layer + 1 for layer in config["dflash_config"]["target_layer_ids"]]
            self.table = model.get_input_embeddings().weight.float()
            self.head = model.get_output_embeddings().weight.float()
        self.block_size = config["block_size"]

    @torch.no_grad()
    def draft_logits(self, text: list[int]) -> Tensor:
        """Logits of the slots behind the last token of a text, [slots - 1, vocabulary]."""
        read = self.model(torch.tensor([text]), output_hidden_states=True).hidden_states
        context = torch.cat([read[i][0, :-1].float() for i in self.states], dim=-1)
        context = self.norm(context @ self.weights["fc.weight"].T, "hidden_norm")
        x = self.table[[text[-1]] + [self.mask_id] * (self.block_size - 1)]
        for layer in range(self.layers["num_hidden_layers"]):
            x = x + self.attention(self.norm(x, f"layers.{layer}.input_layernorm"), context, layer)
            h = self.norm(x, f"layers.{layer}.post_attention_layernorm")
            gate = functional.silu(self.linear(h, f"layers.{layer}.mlp.gate_proj"))
            up = self.linear(h, f"layers.{layer}.mlp.up_proj")
            x = x + self.linear(gate * up, f"layers.{layer}.mlp.down_proj")
        return self.norm(x, "norm")[1:] @ self.head.T

    @torch.no_grad()
    def decode(self, prompt: list[int], num_new: int, stop_id: int) -> tuple[list[int], list[int]]:
        """Return the new tokens, and how many each round gave."""
        text = [*prompt, int(self.model(torch.tensor([prompt])).logits[0, -1].argmax())]
        rounds = []
        while len(text) - len(prompt) < num_new and text[-1] != stop_id:
            draft = self.draft_logits(text).argmax(dim=-1).tolist()
            logits = self.model(torch.tensor([text + draft])).logits[0, len(text) - 1 :]
            wanted = logits.argmax(dim=-1).tolist()
            given = [wanted[0]]
            for drafted, following in zip(draft, wanted[1:], strict=True):
                if drafted != given[-1] or given[-1] == stop_id:
                    break
                given.append(following)
            rounds.append(len(given))
            text += given
        return text[len(prompt) :][:num_new], rounds

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T

    def norm(self, x: Tensor, name: str) -> Tensor:
        size = (x * x).mean(dim=-1, keepdim=True)
        return x / torch.sqrt(size + self.layers["rms_norm_eps"]) * self.weights[f"{name}.weight"]

    def attention(self, x: Tensor, context: Tensor, layer: int) -> Tensor:
        name, width = f"layers.{layer}.self_attn", self.layers["head_dim"]
        source = torch.cat((context, x))
        q = self.linear(x, f"{name}.q_proj").view(len(x), -1, width)
        k = self.linear(source, f"{name}.k_proj").view(len(source), -1, width)
        v = self.linear(source, f"{name}.v_proj").view(len(source), -1, width)
        places = torch.arange(len(source))
        q = self.turned(self.norm(q, f"{name}.q_norm"), places[-len(x) :])
        k = self.turned(self.norm(k, f"{name}.k_norm"), places)
        group = self.layers["num_attention_heads"] // self.layers["num_key_value_heads"]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhe,khe->hqk", q, k) / width**0.5
        mixed = torch.einsum("hqk,khe->qhe", scores.softmax(dim=-1), v)
        return self.linear(mixed.flatten(1), f"{name}.o_proj")

    def turned(self, x: Tensor, places: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        speeds = self.layers["rope_theta"] ** (-torch.arange(half).float() / half)
        angles = (places[:, None] * speeds)[:, None]
        left, right = x[..., :half], x[..., half:]
        return torch.cat(
            (
                left * angles.cos() - right * angles.sin(),
                right * angles.cos() + left * angles.sin(),
            ),
            dim=-1,
        )
