"""Read NVIDIA devices from sysfs and /dev, and the driver through NVML."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envdoctor.facts import FactSet, Gpu, GpuProcess, HostFact, NvidiaFact
from envdoctor.probes.files import UnreadableError, list_folder, read_text

if TYPE_CHECKING:
    from envdoctor.probes.subject import Subject

_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"
_NVML_SECONDS = 20.0
"""NVML wakes every GPU that no other process holds awake: about a second each."""

_LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
_LIBRARY_FOLDERS = (
    "usr/local/nvidia/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
)
"""Where drivers and container runtimes put their libraries."""

_VERSION = re.compile(r"\b\d{3}\.\d+(?:\.\d+)?\b")
_INITS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init", "runit", "s6-svscan"})
"""Names of a first process that adopts what others leave; any other may be the job itself."""


def read_nvidia(subject: Subject, facts: FactSet) -> NvidiaFact:
    """Count devices without the driver; ask NVML only where a device or a driver is seen.

    Raises:
        LookupError: Under WSL2, where a GPU is neither on the bus nor in /dev.
    """
    num_devices = count_devices(subject.root)
    driver = kernel_driver(subject.root)
    if not num_devices and driver is None:
        host = facts.get(HostFact)
        if isinstance(host, HostFact) and host.is_wsl:
            raise LookupError("WSL2 reaches GPUs through Windows, which is not looked at")
        return NvidiaFact(num_devices=0)
    found = NvidiaFact(num_devices=num_devices, driver=driver)
    if subject.is_this_machine:
        found = ask_nvml(subject, found)
    return _with_library(subject, found)


def count_devices(root: Path) -> int:
    """Return how many NVIDIA GPUs the PCI bus or /dev shows, with or without a driver."""
    return max(_count_pci(root), _count_nodes(root))


def _count_pci(root: Path) -> int:
    folder = root / "sys/bus/pci/devices"
    return sum(
        _first_line(folder / name / "vendor") == _VENDOR
        and _first_line(folder / name / "class").startswith(_DISPLAY_CLASS)
        for name in list_folder(folder)
    )


def _count_nodes(root: Path) -> int:
    return sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in list_folder(root / "dev"))


def kernel_driver(root: Path) -> str | None:
    """Return the kernel module's version, which is there even when NVML is not."""
    for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        if match := _VERSION.search(_first_line(root / path)):
            return match[0]
    return None


def _first_line(path: Path) -> str:
    try:
        return (read_text(path) or "").partition("\n")[0].strip()
    except UnreadableError:
        return ""


def ask_nvml(subject: Subject, found: NvidiaFact) -> NvidiaFact:
    """Return what was found with what NVML adds, or with why it did not answer."""
    from envdoctor import shell  # noqa: PLC0415  only where there is a GPU

    pynvml = importlib.util.find_spec("pynvml")
    if pynvml is None or pynvml.origin is None:
        return replace(found, error="the pynvml module is not installed beside envdoctor")
    child = Path(__file__).with_name("nvml_child.py")
    argv = [sys.executable, "-I", "-S", str(child), str(Path(pynvml.origin).parent)]
    kept = ("PATH", "LD_LIBRARY_PATH")
    env = {name: subject.variables[name] for name in kept if name in subject.variables}
    try:
        done = shell.run(argv, env=env, timeout=_NVML_SECONDS)
    except TimeoutError:
        return replace(found, error=f"NVML did not answer within {_NVML_SECONDS:g} s")
    try:
        return _with_answer(found, json.loads(done.stdout))
    except ValueError:
        said = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        return replace(found, error=f"the process that asked NVML failed: {said}")


def _with_answer(found: NvidiaFact, answer: dict[str, Any]) -> NvidiaFact:
    from envdoctor.facts.snapshot import from_data  # noqa: PLC0415  only where there is a GPU

    seen = max(found.num_devices, len(answer.get("gpus", ())))
    fields = {"num_devices": seen, "driver": found.driver, **answer}
    data = {"schema_version": 1, "facts": {"nvidia": fields}}
    fact = from_data(data, source="NVML's answer").need(NvidiaFact)
    return replace(fact, gpus=tuple(map(_with_programs, fact.gpus)))


def _with_programs(gpu: Gpu) -> Gpu:
    return replace(gpu, processes=tuple(map(_with_program, gpu.processes)))


def _with_program(process: GpuProcess) -> GpuProcess:
    """Add a process's name, and whether it was left behind; NVML tells neither."""
    folder = Path("/proc", str(process.pid))
    try:
        text = read_text(folder / "stat") or ""
        group = read_text(folder / "cgroup") or ""
    except UnreadableError:
        return process
    name, _, rest = text.partition("(")[2].rpartition(")")
    parent = rest.split()[1:2]
    adopted = parent == ["1"] and _first_line(Path("/proc/1/comm")) in _INITS
    # a service is the first process's own child, and was not left behind by anything
    is_service = group.strip().endswith(".service")
    return replace(process, name=name, is_orphan=adopted and not is_service)


def _with_library(subject: Subject, found: NvidiaFact) -> NvidiaFact:
    """Add the version of the user-space driver libraries, which a file's name tells."""
    path = found.library_path or _library_file(subject)
    if path is None:
        return found
    match = _VERSION.search(os.path.basename(path).partition(".so.")[2])  # noqa: PTH119  a string
    return replace(found, library=match[0] if match else None, library_path=path)


def _library_file(subject: Subject) -> str | None:
    for name in _LIBRARIES:
        for folder in _LIBRARY_FOLDERS:
            link = subject.root / folder / name
            if link.is_symlink() and (target := _target(link)):
                return f"{subject.shown(link.parent)}/{target}"
    return None


def _target(link: Path) -> str:
    """Return the name of the file that a link's chain ends at, read within one folder."""
    name = link.name
    for _ in range(8):
        path = link.with_name(name)
        if not path.is_symlink():
            return name if path.is_file() else ""
        name = path.readlink().name
    return ""
