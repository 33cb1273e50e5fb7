"""A target on the hub: where it cannot be reached, and where it can."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from tests.train.tiny_run import make_model, make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
NAME = "owner/tiny"
LOAD = f"""
from train.config import TargetConfig
from train.settings import ConfigError
from train.target_loading import load_target
try:
    print(load_target(TargetConfig(path="{NAME}")).config.hidden_size)
except ConfigError as error:
    print(error)
"""
NOBODY = "http://127.0.0.1:9"


def load(home: Path, *, endpoint: str) -> tuple[str, str]:
    """Load the target in a process of its own: the library reads its variables when imported."""
    variables = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "OMP_NUM_THREADS": "1"}
    hidden = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "http_proxy", "HTTP_PROXY")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        env={**kept, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_hub_that_cannot_be_reached_is_asked_for_seconds_and_not_for_each_file(
    tmp_path: Path,
) -> None:
    said, talk = load(tmp_path, endpoint=NOBODY)
    assert said.startswith(f"target.path: cannot load {NAME}: ")
    asking, unreachable = talk.splitlines()
    assert asking == f"no folder here is named {NAME}: asking {NOBODY} for it"
    assert unreachable.startswith("it cannot be reached (")


def test_what_was_fetched_before_is_taken_without_the_hub(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    snapshot = repository / "snapshots" / ("0" * 40)
    make_model().save_pretrained(snapshot)
    make_tokenizer().save_pretrained(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(snapshot.name)
    said, talk = load(tmp_path, endpoint=NOBODY)
    assert said == f"{make_model().config.hidden_size}\n"
    assert "taking what was fetched before" in talk
    assert "Retrying" not in talk


def test_hub_that_answers_has_the_last_word(tmp_path: Path) -> None:
    with _answering_hub() as (endpoint, asked):
        said, talk = load(tmp_path, endpoint=endpoint)
    assert "not a valid model identifier" in said
    assert "cannot be reached" not in talk
    assert len(asked) > 1


@contextmanager
def _answering_hub() -> Iterator[tuple[str, list[str]]]:
    """Serve a hub that knows no model."""
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *_message: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
