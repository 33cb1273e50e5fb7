"""Which target layers the drafter reads; imports no torch."""

from __future__ import annotations


def tapped_layer_ids(num_target_layers: int, num_taps: int) -> tuple[int, ...]:
    """Spread the tapped layers evenly between the target's second and third-to-last layer.

    An id is the 0-based decoder layer whose *output* is read, so in transformers' numbering, where
    entry 0 is the embedding, the states of layer `i` are `hidden_states[i + 1]`.

    Args:
        num_target_layers: Decoder layers of the target, at least 3.
        num_taps: Layers to tap, from 1 to `num_target_layers - 3` (1 when the target has 3).

    Returns:
        `num_taps` ids, strictly increasing; the last layer is never among them.

    Raises:
        ValueError: The target has too few layers for that many different taps.

    Source:
        DFlash, arXiv 2602.06036 v2, and z-lab's reference code (halves round to even).
    """
    room = num_target_layers - 3
    most_taps = max(1, room)
    if room < 0 or not 1 <= num_taps <= most_taps:
        raise ValueError(
            f"cannot tap {num_taps} layers of a target with {num_target_layers}: "
            f"a target needs 3 layers, and this one has room for 1 to {most_taps} taps"
        )
    if num_taps == 1:
        return (num_target_layers // 2,)
    stride = (num_target_layers - 4) / (num_taps - 1)
    return tuple(round(1 + index * stride) for index in range(num_taps))
