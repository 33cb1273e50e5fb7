"""A small profile with a folder of tiny wheels, and ways to build it here or in a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envdoctor import build, profile, settings
from envdoctor.talk import EventKind
from tests.tiny_wheels import make_torch, make_wheel

if TYPE_CHECKING:
    from envdoctor.build import Built
    from envdoctor.settings import Settings
    from envdoctor.talk import Event

ROOT = Path(__file__).parent.parent

# Prints each event before it does anything more, so that a test can kill it at a known point.
DRIVER = """
import json, resource, sys
from envdoctor import build, profile, settings
from envdoctor.errors import EnvdoctorError

def talk(event):
    print(event.kind, event.stage, event.text, flush=True)

options = json.loads(sys.argv[2])
limit = options.pop("limit", None)
request = build.BuildRequest(profile=profile.load_profile(sys.argv[1]), **options)
if limit is not None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    build.build(request, settings=settings.load(), talk=talk)
except EnvdoctorError as error:
    print("error", error.reference, error.message, flush=True)
    sys.exit(int(error.exit_code))
except KeyboardInterrupt:
    sys.exit(130)
"""


@dataclass
class Bench:
    """One home, one folder of wheels, one profile."""

    folder: Path
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        make_torch(self.wheels, "9.9.0+cpu")
        make_torch(self.wheels, "9.9.1+cpu")
        make_wheel(self.wheels, "alpha", "1.0", requires=["beta>=1"])
        make_wheel(self.wheels, "beta", "1.0")

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def envs(self) -> Path:
        return self.home / "envs/tiny"

    @property
    def current(self) -> Path:
        return self.envs / "current"

    @property
    def settings(self) -> Settings:
        return settings.load({**os.environ, "ENVDOCTOR_HOME": str(self.home)})

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if event.kind == EventKind.NOTE)

    def write(
        self,
        *,
        torch: str = "9.9.0",
        variant: str = "cpu",
        require: str = "alpha==1.0",
        wheels: bool = True,
        more: str = "",
    ) -> str:
        """Write the profile and return its path; `more` is TOML after its sections."""
        path = self.folder / "tiny.toml"
        path.write_text(f"""
schema = 1
name = "tiny"
[torch]
version = "{torch}"
variant = "{variant}"
[sources]
pip_config = "ignore"
wheelhouse = {["wheels"] if wheels else []}
[packages]
require = ["{require}"]
forbid = ["vllm*"]
{more}
""")
        return str(path)

    def build(self, path: str, **options: object) -> Built:
        request = build.BuildRequest(profile=profile.load_profile(path), **options)  # type: ignore[arg-type]
        return build.build(request, settings=self.settings, talk=self.events.append)

    def start(self, path: str, **options: object) -> subprocess.Popen[str]:
        """Start a build in a process; `limit` is of the bytes of a file, other options of it."""
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, path, json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, "ENVDOCTOR_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def torch_of_current(self) -> str:
        """Import every module of the current torch in its own interpreter; return its version."""
        code = (
            "import torch, alpha, beta, importlib\n"
            "for n in range(40): importlib.import_module(f'torch.part_{n}')\n"
            "print(torch.__version__)"
        )
        argv = [str(self.current / "bin/python"), "-I", "-B", "-c", code]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    def left_over(self) -> list[str]:
        """Return what a finished build must not leave behind."""
        places = [self.home / "staging/tiny", self.home / "trash"]
        found = [path for place in places if place.is_dir() for path in place.iterdir()]
        return [str(path) for path in [*found, *self.envs.glob(".*.tmp")]]


def envdoctor(bench: Bench, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the bench's home; `more` are variables."""
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", *arguments],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(bench.home), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def wait_for(process: subprocess.Popen[str], start: str) -> None:
    """Read what a started build says until a line begins so."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith(start):
            return
    raise AssertionError(f"never said {start!r}: {''.join(seen)}")


def with_own_mounts(script: str) -> list[str]:
    """Return the start of a command that runs a shell script where it may mount things.

    What follows it are the script's arguments. Skips the test where that is not allowed.
    """
    argv = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare"):
        pytest.skip("there is no program `unshare` to mount things with")
    probe = [*argv, "mount", "-t", "tmpfs", "envdoctor", "/mnt"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    return [*argv, "sh", "-e", "-c", script, "sh"]
