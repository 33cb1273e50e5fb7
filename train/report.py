"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from train.curves import Curve, bars, chart
from train.durable import write_whole
from train.summary import acceptance_words, speed_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from train.run_folder import RunFolder

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:46em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.15em 1em .15em 0;text-align:left;"
    "vertical-align:top}svg{width:100%;height:auto}pre{overflow:auto;background:#f6f8fa;padding:1em}"
)
MAX_POINTS = 600
SHOWN_SLOTS = (0, 1, 3)


def write_report(folder: RunFolder, summary: Mapping[str, Any]) -> None:
    """Write the report of what a run's metrics and summary say; never seen half written."""
    text = page(read_records(folder.metrics.read_bytes().splitlines()), summary)
    write_whole(folder.report, text)


def read_records(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the records of a metrics file; a line cut short by a crash is left out."""
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def page(records: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str:
    """Return the page."""
    name = html.escape(str(summary["name"]))
    body = [
        f"<h1>{name}</h1>",
        table(headline(summary)),
        *curves(records),
        *acceptance(summary.get("decoding")),
        "<h2>Machine</h2>",
        table(machine(summary["machine"])),
        "<h2>Settings</h2>",
        f"<pre>{html.escape(json.dumps(summary['config'], indent=2))}</pre>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{name}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return rows of a name and a value."""
    cells = [
        f"<tr><th>{html.escape(key)}</th><td>{html.escape(value)}</td></tr>" for key, value in rows
    ]
    return f"<table>{''.join(cells)}</table>"


def headline(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a person wants to know first."""
    training, held_out = summary["training"], summary["held_out"]
    rows = [
        ("state", str(summary["state"])),
        ("steps", f"{training['steps']} of {training['num_steps']}"),
        ("context tokens", f"{training['num_tokens']:,}"),
        ("context tokens per second", f"{training['tokens_per_second']:,.0f}"),
        ("held-out loss before", f"{held_out['before']['loss']:.3f} nats"),
    ]
    if "after" in held_out:
        rows.append(("held-out loss after", f"{held_out['after']['loss']:.3f} nats"))
    decoding = summary.get("decoding")
    if decoding:
        rows += [
            ("acceptance length, the target's own token counted", acceptance_words(decoding)),
            ("decoding equals plain decoding", "yes" if decoding["lossless"] else "NO"),
        ]
        rows += [("speed-up", line) for line in speed_lines(decoding)]
    return rows


def curves(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a chart for each thing that changes while training."""
    steps = [record for record in records if record.get("kind") == "step"]
    measured = [record for record in records if record.get("kind") == "evaluation"]
    slots = [
        Curve(f"slot {slot + 1}", _points(steps, lambda one, slot=slot: _at(one["accuracy"], slot)))
        for slot in SHOWN_SLOTS
    ]
    charts = {
        "Training loss, nats": [Curve("loss", _points(steps, lambda one: one["loss"]))],
        "Share of right draft tokens": slots,
        "Estimated acceptance length, training data": [
            Curve("estimate", _points(steps, lambda one: one["estimated_acceptance_length"]))
        ],
        "Acceptance length on held-out prompts, decoded on the way": [
            Curve("decoded", _points(measured, lambda one: one.get("acceptance_length")))
        ],
        "Held-out loss, nats": [Curve("loss", _points(measured, lambda one: one["held_out_loss"]))],
        "Context tokens per second": [
            Curve("tokens/s", _points(steps, lambda one: one["tokens_per_second"]))
        ],
        "Learning rate": [Curve("rate", _points(steps, lambda one: one["learning_rate"]))],
    }
    found = []
    for title, lines in charts.items():
        if drawn := [line for line in lines if line.points]:
            found += [f"<h2>{title}</h2>", chart(drawn, x_name="optimizer step")]
    return found


def acceptance(decoding: Mapping[str, Any] | None) -> list[str]:
    """Return how many tokens the passes of the target yielded."""
    histogram = (decoding or {}).get("trained", {}).get("histogram")
    if not histogram:
        return []
    counts = [(str(tokens), float(rounds)) for tokens, rounds in enumerate(histogram, start=1)]
    drawn = bars(counts, x_name="tokens that a pass of the target yielded")
    return ["<h2>Acceptance on held-out prompts, passes</h2>", drawn]


def machine(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the run ran on."""
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    return [
        ("device", str(summary["device"])),
        ("CPU cores", str(summary["num_cpus"])),
        ("peak memory", f"{summary['peak_memory_bytes'] / 1e9:.2f} GB"),
        ("versions", versions),
    ]


def _points(records: Sequence[Mapping[str, Any]], value: Any) -> list[tuple[float, float]]:
    """Return steps and values, not more than a screen can show; what JSON could not hold is out."""
    every = max(1, len(records) // MAX_POINTS)
    found = ((record["step"], value(record)) for record in [*records[:-1:every], *records[-1:]])
    return [(float(step), float(one)) for step, one in found if one is not None]


def _at(values: Sequence[float | None], index: int) -> float | None:
    return values[index] if index < len(values) else None
