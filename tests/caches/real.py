"""A cache that torch itself writes: a small function is compiled, forward and backward."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import torch
from torch._dynamo.utils import counters

@torch.compile
def function(x):
    return (x.sin() * 2).sum()

function(torch.randn(8, requires_grad=True)).backward()
print(counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"])
"""


def compile_into(cache: Path, python: str = sys.executable) -> tuple[int, int]:
    """Compile with a cache; return how many graphs it lacked and how many it had."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    script = cache.parent / "compiled.py"
    script.write_text(SCRIPT)
    variables = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [python, str(script)], env=variables, capture_output=True, text=True, check=True
    )
    missed, had = done.stdout.split()[-2:]
    return int(missed), int(had)
