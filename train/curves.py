"""Draw curves and bars as SVG that stands alone; no torch."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 32
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a", "#0a3069", "#953800")
NUM_TICKS = 4


@dataclass(frozen=True)
class Curve:
    """One line of a chart.

    Attributes:
        name: What it shows; its legend.
        points: Pairs of x and y, x rising; at least one.
    """

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class _Frame:
    """Maps values to places of the drawing."""

    first: tuple[float, float]
    last: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        share_x, share_y = (
            (value - low) / ((high - low) or 1.0)
            for value, low, high in zip((x, y), self.first, self.last, strict=True)
        )
        return (
            LEFT + share_x * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - share_y * (HEIGHT - TOP - BOTTOM),
        )


def chart(curves: Sequence[Curve], *, x_name: str) -> str:
    """Return curves over a common x as an SVG element."""
    points = [point for curve in curves for point in curve.points]
    xs, ys = zip(*points, strict=True)
    frame = _Frame((min(xs), min(ys)), (max(xs), max(ys)))
    parts = [*_axes(frame, x_name)]
    for index, curve in enumerate(curves):
        colour = COLOURS[index % len(COLOURS)]
        places = [frame.place(x, y) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{path}"/>')
        parts += [
            f'<circle r="1.5" fill="{colour}" cx="{x:.1f}" cy="{y:.1f}"/>' for x, y in places[-1:]
        ]
        parts.append(_text(WIDTH - RIGHT, TOP + 14 * (index + 1), curve.name, colour, "end"))
    return _svg(parts)


def bars(counts: Sequence[tuple[str, float]], *, x_name: str) -> str:
    """Return a bar for each pair of label and value, each with its value, as an SVG element."""
    highest = max((value for _, value in counts), default=0.0) or 1.0
    frame = _Frame((0.0, 0.0), (float(len(counts)), highest))
    parts = [_text((LEFT + WIDTH) / 2, HEIGHT - 4, x_name)]
    for index, (label, value) in enumerate(counts):
        left, top = frame.place(index + 0.1, value)
        right, bottom = frame.place(index + 0.9, 0.0)
        middle = (left + right) / 2
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}"'
            f' height="{bottom - top:.1f}" fill="{COLOURS[0]}"/>'
        )
        parts += [_text(middle, bottom + 13, label), _text(middle, top - 2, f"{value:g}")]
    return _svg(parts)


def _axes(frame: _Frame, x_name: str) -> list[str]:
    (low_x, low_y), (high_x, high_y) = frame.first, frame.last
    parts = [_text((LEFT + WIDTH) / 2, HEIGHT - 4, x_name)]
    for y_value in _ticks(low_y, high_y):
        _, y = frame.place(low_x, y_value)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>'
        )
        parts.append(_text(LEFT - 6, y + 4, f"{y_value:.3g}", anchor="end"))
    for x_value in _ticks(low_x, high_x):
        x, _ = frame.place(x_value, low_y)
        parts.append(_text(x, HEIGHT - BOTTOM + 14, f"{x_value:.4g}"))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Return values to mark on an axis; one where all values are the same, as of a single step."""
    if low == high:
        return [low]
    return [low + (high - low) * index / NUM_TICKS for index in range(NUM_TICKS + 1)]


def _text(x: float, y: float, text: str, colour: str = "#57606a", anchor: str = "middle") -> str:
    shown = html.escape(text)
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
        f' font-size="11">{shown}</text>'
    )


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
