from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from envdoctor.caches.export import export
from tests.caches.samples import Bench, graph_pickle, write_graph

ROOT = Path(__file__).parents[2]
NUM = 1500


def test_a_killed_import_leaves_whole_files_and_the_next_one_completes_it(tmp_path: Path) -> None:
    here, there = Bench(tmp_path / "here"), Bench(tmp_path / "there")
    mark = here.around().mark
    for number in range(NUM):
        write_graph(here.inductor, number, graph_pickle(number, mark=mark))
    here.stamp()
    packed = tmp_path / "packed.cache"
    export(here.survey(deep=True), here.around().fingerprint, packed)
    # --force: the process sees no GPU, unlike the bench
    command = [sys.executable, "-m", "envdoctor", "cache", "import", str(packed), "--force"]
    command += ["--prefix", str(there.environment.prefix)]
    variables = {**os.environ, **there.subject.variables, "PYTHONPATH": str(ROOT)}
    variables["ENVDOCTOR_HOME"] = str(there.home)
    process = subprocess.Popen(command, env=variables)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(there.inductor.glob("fxgraph/*"))) > 3:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = there.classes(deep=True)
    assert {kind for path, kind in found.items() if ".tmp" not in path} <= {"unknown", "valid"}
    assert {kind for path, kind in found.items() if ".tmp" in path} <= {"corrupt"}
    subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL)
    counts = there.counts(deep=True)
    assert counts["valid"] == NUM
    assert counts.keys() <= {"valid", "corrupt"}
