"""The failures of a build that users meet most, each brought about for real, and what it says."""

from __future__ import annotations

import http.server
import json
import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from envdoctor.build_lock import held
from envdoctor.errors import EnvdoctorError, SourceError
from tests.index_server import Manner, serving_all
from tests.tiny_wheels import make_index, make_torch, make_wheel
from tests.workbench import DRIVER, ROOT, Bench, wait_for, with_own_mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Provocation = Callable[[Bench, pytest.MonkeyPatch], str]

DEAD_INDEX = """
[[index]]
name = "near"
url = "http://127.0.0.1:9/simple"
packages = ["torch"]
[[index]]
name = "main"
default = true
same_variant = { torch = ["9.9.0"] }
"""


def said(bench: Bench, path: str, **options: object) -> str:
    """Build; return all notes, then the error and its hint if there is one."""
    try:
        bench.build(path, **options)
    except EnvdoctorError as error:
        return f"{bench.notes}\n{error.message}\n{error.hint}"
    return bench.notes


def with_pip(path: str) -> str:
    """Let a profile take pip's configuration as well."""
    text = Path(path).read_text()
    Path(path).write_text(text.replace('pip_config = "ignore"', ""))
    return path


def index_dead(bench: Bench, _: pytest.MonkeyPatch) -> str:
    torch = make_torch(bench.folder / "plain", "9.9.0", cuda="12.8")
    url = make_index(bench.folder / "main", [torch, *bench.wheels.glob("[ab]*.whl")])
    more = DEAD_INDEX.replace("default = true", f'default = true\nurl = "{url}"')
    return said(bench, bench.write(variant="cu128", wheels=False, more=more))


def index_dead_without_fallback(bench: Bench, _: pytest.MonkeyPatch) -> str:
    more = DEAD_INDEX.replace("9.9.0", "2.10.0")
    return said(bench, bench.write(torch="2.12.0", variant="cu128", wheels=False, more=more))


def private_index_dead(bench: Bench, _: pytest.MonkeyPatch) -> str:
    url = "http://joe:pass@127.0.0.1:9/simple"
    more = f'{DEAD_INDEX}url = "{url}"\n'
    with pytest.raises(SourceError) as caught:
        bench.build(bench.write(wheels=False, more=more))
    return str(caught.value)


def no_solution(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> str:
    constraint = bench.folder / "constraints.txt"
    constraint.write_text("alpha<1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraint))
    return said(bench, with_pip(bench.write()))


def wrong_hash(bench: Bench, _: pytest.MonkeyPatch) -> str:
    folder = bench.folder / "plain"
    make_torch(folder, "9.9.0", cuda="12.8")
    for wheel in bench.wheels.glob("[ab]*.whl"):
        shutil.copy(wheel, folder)
    with serving_all({"simple": folder}, manner=Manner(is_wrong=True)) as server:
        more = f"""
[[index]]
name = "main"
default = true
url = "{server.url()}"
same_variant = {{ torch = ["9.9.0"] }}
"""
        return said(bench, bench.write(variant="cu128", wheels=False, more=more))


def no_space(bench: Bench, _: pytest.MonkeyPatch) -> str:
    return said(bench, bench.write(more="[build]\ndisk_gb = 1e6"))


def interrupted(bench: Bench, _: pytest.MonkeyPatch) -> str:
    first = bench.build(bench.write())
    make_wheel(bench.wheels, "beta", "2.0", files={"beta.py": "import time; time.sleep(60)\n"})
    process = bench.start(bench.write(more='[check]\nimports = ["beta"]'))
    wait_for(process, "stage import")
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=30)[0].replace(first.path.name, "FIRST")


def killed_while_installing(bench: Bench, _: pytest.MonkeyPatch) -> str:
    process = bench.start(bench.write())
    wait_for(process, "tool install")
    process.kill()
    process.communicate()
    return said(bench, bench.write())


def wrong_variant(bench: Bench, _: pytest.MonkeyPatch) -> str:
    wrong = make_torch(bench.folder / "cuda", "9.9.0", cuda="13.0")
    wrong.rename(bench.wheels / "torch-9.9.0+cpu-py3-none-any.whl")
    plain = make_torch(bench.folder / "plain", "9.9.0", cuda="13.0")
    url = make_index(bench.folder / "main", [plain, *bench.wheels.glob("[ab]*.whl")])
    more = DEAD_INDEX.replace("default = true", f'default = true\nurl = "{url}"')
    return said(bench, bench.write(variant="cu128", wheels=False, more=more))


def forbidden_package(bench: Bench, _: pytest.MonkeyPatch) -> str:
    make_wheel(bench.wheels, "gamma", "1.0", requires=["vllm-flash"])
    make_wheel(bench.wheels, "vllm-flash", "1.0")
    return said(bench, bench.write(require="gamma==1.0"))


def collision(bench: Bench, _: pytest.MonkeyPatch) -> str:
    library = "nvidia/cusparselt/lib/libcusparseLt.so.0"
    make_wheel(bench.wheels, "nvidia-cusparselt-cu12", "1.0", files={library: "12"})
    requires = ["nvidia-cusparselt-cu12"]
    make_wheel(
        bench.wheels, "nvidia-cusparselt-cu13", "1.0", files={library: "13"}, requires=requires
    )
    return said(bench, bench.write(require="nvidia-cusparselt-cu13==1.0"))


def foreign_library(bench: Bench, _: pytest.MonkeyPatch) -> str:
    outside = bench.folder / "system/libcudnn.so.9"
    outside.parent.mkdir()
    maps = Path("/proc/self/maps").read_text().split()
    shutil.copy(next(word for word in maps if "/libm.so" in word or "/libm-" in word), outside)
    body = f"import ctypes\nctypes.CDLL({str(outside)!r})\n"
    make_wheel(bench.wheels, "alpha", "1.0", files={"alpha.py": body})
    return said(bench, bench.write(more='[check]\nimports = ["torch", "alpha"]'))


def missing_library(bench: Bench, _: pytest.MonkeyPatch) -> str:
    return said(bench, bench.write(more='[libraries]\nrequire = ["libcudart.so.99"]'))


MOUNT_DRIVER = """
mount -t tmpfs envdoctor /sys/module
mkdir /sys/module/nvidia
echo 470.223.02 > /sys/module/nvidia/version
exec "$@"
"""


def broken_driver(bench: Bench, _: pytest.MonkeyPatch) -> str:
    """A kernel module without its libraries: the build goes on, and is for another machine."""
    make_torch(bench.wheels, "9.9.0+cu128", cuda="12.8")
    path = bench.write(variant="cu128", more='[gpu]\ndriver_min = "525.60.13"')
    done = subprocess.run(
        [*with_own_mounts(MOUNT_DRIVER), sys.executable, "-c", DRIVER, path, "{}"],
        cwd=ROOT,
        env={**os.environ, "ENVDOCTOR_HOME": str(bench.home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert bench.torch_of_current() == "9.9.0+cu128"
    (receipt,) = bench.envs.glob("receipts/*.json")
    found = json.loads(receipt.read_text())["report"]["findings"]
    outcomes = {one["check"]: one["outcome"] for one in found}
    assert outcomes["no-nvidia-driver"] == "problem"
    return done.stdout


def old_driver(bench: Bench, _: pytest.MonkeyPatch) -> str:
    """As below, a recorded machine stands in for one that is not to be had here."""
    facts = json.loads((ROOT / "tests/facts/h200-ok.json").read_text())
    facts["facts"]["nvidia"]["driver"] = "470.223.02"
    path = bench.folder / "facts.json"
    path.write_text(json.dumps(facts))
    return check_of(path)


def other_architecture(bench: Bench, _: pytest.MonkeyPatch) -> str:
    """A GPU is not to be had here; a recorded machine whose GPU is newer than its torch is."""
    text = (ROOT / "tests/facts/h200-ok.json").read_text()
    facts = bench.folder / "facts.json"
    facts.write_text(text.replace('"capability": "9.0"', '"capability": "11.0"'))
    return check_of(facts)


def check_of(facts: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "envdoctor", "check", "--facts", str(facts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    return done.stdout


def untrusted_certificate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> str:
    """One build without the certificate, then one to which pip's configuration hands it."""
    plain = make_torch(bench.wheels, "9.9.0", cuda="12.8")
    make_index(bench.folder / "site/simple", [])
    with serving_tls(bench) as (port, certificate):
        site = bench.folder / "site"
        for wheel in [plain, *bench.wheels.glob("[ab]*.whl")]:
            page = site / "simple" / wheel.name.split("-")[0] / "index.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, page.parent)
            with page.open("a") as stream:
                stream.write(f'<a href="{wheel.name}">{wheel.name}</a>\n')
        more = f"""
[[index]]
name = "main"
default = true
url = "https://127.0.0.1:{port}/simple"
same_variant = {{ torch = ["9.9.0"] }}
"""
        path = bench.write(variant="cu128", wheels=False, more=more)
        without = said(bench, path)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_CERT", str(certificate))
        monkeypatch.setenv("PIP_INDEX_URL", f"https://127.0.0.1:{port}/simple")
        bench.events.clear()
        return f"{without}\n{said(bench, with_pip(path))}"


CERTIFICATE = """
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
openssl req -new -newkey rsa:2048 -nodes -subj /CN=127.0.0.1 -keyout key.pem -out request
openssl x509 -req -in request -CA ca.pem -CAkey ca.key -days 2 -extfile names -out cert.pem
"""


@contextmanager
def serving_tls(bench: Bench) -> Iterator[tuple[int, Path]]:
    """Serve the bench's folder `site` with a certificate that nobody trusts."""
    if not shutil.which("openssl"):
        pytest.skip("there is no program `openssl` to make a certificate with")
    names = bench.folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    for command in CERTIFICATE.strip().splitlines():
        argv = shlex.split(command)
        subprocess.run(argv, check=True, capture_output=True, cwd=bench.folder)
    key, certificate = bench.folder / "key.pem", bench.folder / "cert.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    handler = partial(_Silent, directory=str(bench.folder / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1], bench.folder / "ca.pem"
        finally:
            server.shutdown()
            thread.join()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def busy(bench: Bench, _: pytest.MonkeyPatch) -> str:
    with held(bench.home / "locks/tiny.json", what="profile tiny"):
        return said(bench, bench.write(), wait=False)


def other_file_system(bench: Bench, _: pytest.MonkeyPatch) -> str:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == bench.folder.stat().st_dev:
        pytest.skip("/dev/shm is no other file system here")
    cache = shm / f"envdoctor-{os.getpid()}"
    cache.mkdir()
    try:
        bench.home.mkdir()
        (bench.home / "uv-cache").symlink_to(cache)
        return said(bench, bench.write(more='[build]\nlink_mode = "hardlink"'))
    finally:
        shutil.rmtree(cache)


HOST = socket.gethostname()
MESSAGES: list[tuple[Provocation, list[str]]] = [
    (index_dead, ["left out near index: 127.0.0.1:9 did not answer (connection refused)",
                  "torch 9.9.0 comes from", "whose plain wheel is the same variant (cu128)"]),
    (index_dead_without_fallback,
     ["127.0.0.1:9 did not answer", "its torch 2.12.0 is cu130, not cu128",
      'torch.version = "2.10.0" would do', "--wheels DIR", "a mirror's URL"]),
    (private_index_dead, ["main index http://****@127.0.0.1:9/simple: 127.0.0.1:9 did not answer"]),
    (no_solution, ["no source has a set of packages", "alpha==1.0", "constraints hold here: /",
                   "constraints.txt", "PIP_CONSTRAINT="]),
    (wrong_hash, [".whl: 127.0.0.1:", "wanted", "kept as *.whl.bad", "envdoctor lock --upgrade "]),
    (no_space, ["needs 2000000.0 GB in /", ", has ", " wheels, ", " uv's cache, ",
                ' environment; link_mode = "hardlink" needs 1000000.0']),
    (interrupted, ["stopped in stage import; run the same command to go on",
                   "current is still FIRST"]),
    (killed_while_installing, ["threw away what an unfinished build left: ",
                               "its wheels are kept", "in place: /"]),
    (wrong_variant, ["wanted cu128; torch.version.cuda is 13.0 (torch 9.9.0 from /"]),
    (forbidden_package,
     ['vllm-flash comes through gamma <- your requirement "gamma==1.0"', "packages.forbid"]),
    (collision, ["nvidia-cusparselt-cu12 and nvidia-cusparselt-cu13 both own nvidia/cusparselt/",
                 "/libcusparseLt.so.0: one would overwrite the other"]),
    (foreign_library, ["not loaded from the environment: libcudnn.so.9 (/", "system/libcudnn"]),
    (missing_library, ["does not import: libcudart.so.99: ", "cannot open shared object file"]),
    (broken_driver, ["the driver does not work", "built and checked on the CPU", "in place: /"]),
    (old_driver, ["driver 470.223.02, which", "is older than 580.65.06, the lowest for CUDA 13.0"]),
    (other_architecture, ["is sm_110; torch 2.11.0+cu130 has sm_75 sm_80"]),
    (untrusted_certificate, ["invalid peer certificate", "set SSL_CERT_FILE, or pip's `cert`",
                             "passing it on to uv as SSL_CERT_FILE", "in place: /"]),
    (busy, [f"another build of profile tiny runs: host {HOST}, pid {os.getpid()}, since 20"]),
    (other_file_system,
     ["uv-cache is on another file system: files will be copied, not linked", "in place: /"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("provoke", "words"), MESSAGES, ids=[provoke.__name__ for provoke, _ in MESSAGES]
)
def test_failure_says_what_where_and_what_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provoke: Provocation, words: list[str]
) -> None:
    text = provoke(Bench(tmp_path), monkeypatch)
    assert not [word for word in words if word not in text], text
