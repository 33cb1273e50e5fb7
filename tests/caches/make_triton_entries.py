"""Make real entries of a Triton cache, on any machine: Triton compiles for GPUs that are not there.

    ENVIRONMENT/bin/python make_triton_entries.py FOLDER [ARCH ...]

Paths are scrubbed: `{root}` stands for the cache's folder, as `tests.caches.samples` expects it.
With Triton 3.6.0 and the architectures 80, 90 and 100 this made the kernels `scale` of
`tests/facts/triton-cache`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
"""
_SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}


def make(cache: Path, archs: list[int], source: Path) -> None:
    """Compile one kernel for each architecture."""
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    triton: Any = __import__("triton.compiler")
    target: Any = __import__("triton.backends.compiler", fromlist=["GPUTarget"]).GPUTarget
    sys.path.insert(0, str(source.parent))
    kernel = __import__(source.stem).scale
    for arch in archs:
        wanted = triton.compiler.ASTSource(kernel, _SIGNATURE, {(3,): 128})
        triton.compile(wanted, target=target("cuda", arch, 32))


def scrub(cache: Path) -> None:
    """Replace the cache's own path, and where Triton is installed, in its JSON files."""
    for path in cache.glob("*/*.json"):
        data = json.loads(path.read_text().replace(str(cache), "{root}"))
        if "extern_libs" in data:
            data["extern_libs"] = [[name, Path(lib).name] for name, lib in data["extern_libs"]]
        path.write_text(json.dumps(data))


def main() -> None:
    folder, *archs = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="kernels-") as place:
        source = Path(place, "scale.py")
        source.write_text(KERNEL)
        # in the working folder, so that debug lines name nothing but the file
        os.chdir(place)
        make(Path(folder).absolute(), [int(arch) for arch in archs] or [80, 90, 100], source)
    scrub(Path(folder).absolute())


if __name__ == "__main__":
    main()
