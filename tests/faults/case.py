"""Turn a fault case's `env.json` into facts of envdoctor's own."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import envdoctor.facts
from envdoctor.facts import (
    CompilerFact,
    ContainerFact,
    CudaStartFact,
    Fact,
    FactSet,
    Gpu,
    HostFact,
    InterpreterFact,
    KernelLogFact,
    LimitsFact,
    MigDevice,
    Mount,
    NetworkFact,
    NvidiaFact,
    PathOwner,
    PathOwnersFact,
    ProbeRecordsFact,
    RunRecord,
    ServicesFact,
    StorageFact,
    UserFact,
    VariablesFact,
)
from envdoctor.probes.files import list_folder
from envdoctor.probes.host import glibc_of_root
from envdoctor.probes.nvidia import count_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MIB = 1024**2


@dataclass(frozen=True)
class Case:
    """A folder that holds an environment, the simulated rest of its machine, and `env.json`."""

    folder: Path
    raw: Mapping[str, Any]

    @property
    def told(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self.raw.get("facts", {})
        return told

    @property
    def sysroot(self) -> Path:
        named = Path(self.raw.get("sysroot", ""))
        return named if named.is_absolute() and named.is_dir() else self.folder / "sysroot"

    def facts(self) -> FactSet:
        return FactSet(fact for fact in self._facts() if fact is not None)

    def _facts(self) -> Iterator[Fact | None]:
        yield self._interpreter()
        # A case's variables are those of a process that uses its environment.
        variables = {"VIRTUAL_ENV": str(self.folder), **self.raw.get("env", {})}
        yield VariablesFact(values=tuple(sorted(variables.items())))
        yield from machine_facts(self.told, self.sysroot)
        yield from tool_facts(self.told, self.raw.get("python", {}))
        yield path_owners(self.told)
        yield from _foreign_facts(self.told)

    def _interpreter(self) -> InterpreterFact:
        python = self.raw.get("python", {})
        prefix = python.get("prefix", str(self.folder))
        known = {field.name for field in dataclasses.fields(InterpreterFact)}
        more = {
            name: python[name] for name in ("purelib", "platlib", "user_site") if name in python
        }
        folders = list(python.get("sys_path", [str(self.folder / "site-packages")]))
        if python.get("enable_user_site") and python.get("user_site", folders[0]) not in folders:
            folders.insert(0, python["user_site"])
        return InterpreterFact(
            prefix=prefix,
            python=f"{prefix}/bin/python",
            version=python.get("version", "3.11.9"),
            is_venv=True,
            site_packages=tuple(folders),
            **{name: value for name, value in more.items() if name in known},
        )


def load_case(folder: Path) -> Case:
    return Case(folder=folder.resolve(), raw=json.loads((folder / "env.json").read_text()))


def machine_facts(told: Mapping[str, Any], sysroot: Path) -> Iterator[Fact]:
    container = told.get("container", {})
    yield HostFact(
        machine=told.get("machine", "x86_64"),
        kernel=told.get("kernel", ""),
        glibc=told.get("glibc") or glibc_of_root(sysroot),
        shm_bytes=container.get("shm_bytes"),
        disk_free_bytes=told.get("disk_free_bytes", {}).get("/"),
    )
    yield storage_fact(told)
    if container:
        yield ContainerFact(
            kind="container" if container.get("in_container") else "",
            memory_limit_bytes=container.get("memory_limit_bytes"),
        )
    yield nvidia_fact(told, sysroot)
    if "cuda_init" in told:
        start = told["cuda_init"]
        yield CudaStartFact(
            code=start.get("rc", 0),
            name=start.get("name", ""),
            num_devices=start.get("device_count", 0),
            runtime_code=start.get("runtime_rc", 0),
            runtime_name=start.get("runtime_name", ""),
        )
    limits = told.get("limits") or told.get("ulimits") or {}
    yield LimitsFact(memlock_bytes=limits.get("memlock"), open_files=limits.get("nofile"))
    if "user" in told:
        yield user_fact(told["user"])
    if "net" in told:
        yield network_fact(told["net"], sysroot)
    yield ServicesFact(states=tuple((n, _state(s)) for n, s in told.get("services", {}).items()))
    yield KernelLogFact(lines=tuple(map(str, told.get("kernel_log", []))))


def storage_fact(told: Mapping[str, Any]) -> StorageFact:
    return StorageFact(
        mounts=tuple(
            Mount(
                path=mount["path"], kind=mount.get("fstype", ""), options=mount.get("options", "")
            )
            for mount in told.get("mounts", [])
        ),
        free=tuple(
            (path, free) for path, free in told.get("disk_free_bytes", {}).items() if path != "/"
        ),
    )


def nvidia_fact(told: Mapping[str, Any], sysroot: Path) -> NvidiaFact:
    driver, nvml = told.get("driver", {}), told.get("nvml", {})
    kernel = driver.get("kernel_module_version")
    gpus = tuple(_gpu(device, at) for at, device in enumerate(nvml.get("devices", [])))
    seen = (count_devices(sysroot), len(gpus), nvml.get("device_count", 0), int(kernel is not None))
    code = nvml.get("rc", 0)
    return NvidiaFact(
        num_devices=max(seen),
        driver=kernel,
        cuda=driver.get("cuda_max"),
        gpus=gpus,
        error=nvml.get("name", f"NVML error {code}") if code else "",
        error_code=code or None,
        library=driver.get("userspace_version"),
    )


def _gpu(device: Mapping[str, Any], at: int) -> Gpu:
    slices = device.get("mig_devices", [])
    used = device.get("memory_used_mib")
    return Gpu(
        index=device.get("index", at),
        name=device.get("name", ""),
        capability=".".join(map(str, device.get("cc", [0, 0]))),
        memory_bytes=device.get("memory_total_mib", 0) * _MIB,
        uuid=device.get("uuid", ""),
        memory_used_bytes=None if used is None else used * _MIB,
        is_mig=bool(device.get("mig_mode")),
        mig_devices=tuple(MigDevice(uuid=item["uuid"]) for item in slices),
        fabric=device.get("fabric_state", ""),
    )


def user_fact(user: Mapping[str, Any]) -> UserFact:
    return UserFact(
        uid=user.get("uid", 0),
        has_passwd_entry=user.get("has_passwd_entry", True),
        name=user.get("name"),
        home=user.get("home"),
        home_writable=user.get("home_writable", True),
    )


def network_fact(net: Mapping[str, Any], sysroot: Path) -> NetworkFact:
    found = list_folder(sysroot / "sys/class/infiniband")
    hcas = next((net[name] for name in ("hcas", "ib_devices", "ib_hcas") if name in net), found)
    return NetworkFact(interfaces=tuple(net.get("interfaces", ())), hcas=tuple(hcas))


def tool_facts(told: Mapping[str, Any], python: Mapping[str, Any]) -> Iterator[Fact]:
    if "toolchain" in told:
        tools = told["toolchain"]
        yield CompilerFact(
            path=tools.get("cc"), include=python.get("include"), has_python_h=tools.get("python_h")
        )
    yield ProbeRecordsFact(
        records=tuple(
            RunRecord(source=name, text=str(result.get("error", "failed")))
            for name, result in told.get("probes", {}).items()
            if not result.get("ok", True)
        )
    )


def _state(state: Any) -> str:
    if isinstance(state, dict):
        return ", ".join(f"{name}={value}" for name, value in state.items())
    return {True: "running", False: "stopped"}.get(state, str(state))


def path_owners(told: Mapping[str, Any]) -> PathOwnersFact:
    return PathOwnersFact(
        owners=tuple(
            PathOwner(
                path=path,
                uid=owner.get("uid"),
                mode=int(str(owner["mode"]), 8) if "mode" in owner else None,
                is_writable=owner.get("writable"),
            )
            for path, owner in told.get("path_owners", {}).items()
        )
    )


def _foreign_facts(told: Mapping[str, Any]) -> Iterator[Fact | None]:
    cache = getattr(envdoctor.facts, "LoaderCacheFact", None)
    if cache is not None and "ld_cache" in told:
        yield cache(entries=tuple(told["ld_cache"].items()))
