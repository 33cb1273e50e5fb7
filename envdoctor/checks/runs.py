"""Checks of a run file of the trainer against the environment (`--config`)."""

from __future__ import annotations

from envdoctor.check import check
from envdoctor.facts import NvidiaFact, RunFact, TorchBuildFact
from envdoctor.resources import trainer_module
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Skipped, Verdict

_NO_RUN = Skipped("no run file was named (--config)")
_DENSE_BUDGET_BYTES = 8 * 2**30  # that of train/attention.py


@check()
def run_layout_refused(run: RunFact, torch_build: TorchBuildFact) -> Verdict:
    """The run file asks for a layout that is refused with this torch.

    ## What it checks
    `layout.mode` of the run file that `--config` names, and the torch version.

    ## Why it matters
    Drafters in threads of one process fail in the middle of a training with torch before 2.14, or
    wait for each other for ever: `envdoctor explain fx-tracing-race` has the story. With a later
    torch threads are not supported either: they share a compiler that is not made for it. One
    process for each GPU is not there yet.

    ## Remedy
    `layout.mode = "inline"`, or no `[layout]` at all.

    ## Source
    `train/layout.py`, which refuses the same when the training starts.
    """
    if not run.path:
        return _NO_RUN
    layout = trainer_module("layout")
    reason = layout.refusal(layout.LayoutConfig(mode=run.mode), torch_build.version or "")
    if reason is None:
        return Ok(f"{run.path} runs in one process")
    return Problem(
        culprit=run.path,
        message=f"{run.path}: {reason}",
        evidence=(Evidence(subject="layout.mode", expected="inline", found=run.mode),),
        remedy=Remedy(kind="change-run-file", text='Set layout.mode = "inline".'),
    )


@check()
def dense_attention_too_large(
    run: RunFact, torch_build: TorchBuildFact, nvidia: NvidiaFact
) -> Verdict:
    """Dense attention would not fit into memory for the shapes of this run.

    ## What it checks
    The bytes of one layer's attention scores for the run file that `--config` names: rows x heads x
    draft tokens x keys x 4 bytes at the greatest length. An error if the run will attend densely
    and they exceed 8 GiB; a note if it will run fused and they would not fit into the smallest GPU,
    or exceed 8 GiB where none is here.

    ## Why it matters
    Compiled flex_attention never holds these scores. Whatever makes it run uncompiled does, in
    every layer: a missing torch.compile, error_on_nested_fx_trace = False, too many recompilations.
    The known case, 32 heads x 32,768 draft tokens x 72,768 keys, is 284 GiB.

    ## Remedy
    A CUDA device with `train.attention` auto or flex; or fewer anchors, rows or tokens.

    ## Source
    torch/nn/attention/flex_attention.py of torch 2.9.1 to 2.15.0, read 2026-11-29.
    """
    if not run.path:
        return _NO_RUN
    needed_bytes, told = _scores(run)
    if _is_dense(run, torch_build, nvidia):
        limit, severity = _DENSE_BUDGET_BYTES, Severity.ERROR
        message = f"this run attends densely, and {told}"
    else:
        limit = min((gpu.memory_bytes or 0 for gpu in nvidia.gpus), default=_DENSE_BUDGET_BYTES)
        severity = Severity.INFO
        message = f"attention must stay fused, as compiled flex_attention is: {told}"
    if needed_bytes <= limit:
        return Ok(told)
    return Problem(
        culprit=run.path,
        severity=severity,
        message=message,
        evidence=(
            Evidence(subject=run.path, expected=f"at most {limit}", found=str(needed_bytes)),
        ),
        remedy=Remedy(
            kind="change-run-file",
            text="Train on a CUDA device with train.attention auto or flex; or take fewer anchors, "
            "rows or tokens.",
        ),
    )


def _scores(run: RunFact) -> tuple[int, str]:
    """Return the bytes of one layer's scores, of one head if their number is unknown, in words."""
    sizes = trainer_module("sizes")
    needed_bytes = sizes.dense_attention_bytes(
        run.num_heads or 1, num_queries=run.num_queries, num_keys=run.num_keys, batch=run.num_rows
    )
    heads = f" x {run.num_heads} heads" if run.num_heads else ""
    whose = "one layer's" if heads else "each head's (the target does not lie here)"
    rows = "1 row" if run.num_rows == 1 else f"{run.num_rows} rows"
    shape = f"{run.num_queries:,} draft tokens x {run.num_keys:,} keys x 4 bytes"
    size = sizes.readable(needed_bytes)
    return needed_bytes, f"{whose} dense scores would take {size}: {rows}{heads} x {shape}"


def _is_dense(run: RunFact, torch_build: TorchBuildFact, nvidia: NvidiaFact) -> bool:
    """Tell whether the trainer will hold all scores, as `attention_for` decides."""
    has_gpu = torch_build.cuda is not None and bool(nvidia.gpus)
    on_cpu = run.device == "cpu" or (run.device == "auto" and not has_gpu)
    return run.attention == "dense" or (run.attention == "auto" and on_cpu)
