"""Readings of the machine: host, container, user, NVIDIA hardware and driver, network."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class HostFact(Fact):
    """The machine around the environment; None where the kernel does not say."""

    machine: str
    kernel: str
    glibc: str | None
    shm_bytes: int | None
    disk_free_bytes: int | None
    system: str = "Linux"

    @property
    def is_wsl(self) -> bool:
        """True under WSL2: Microsoft's kernels say so, as 5.15.153.1-microsoft-standard-WSL2."""
        return "microsoft" in self.kernel.lower()


@keyword_value
class ContainerFact(Fact):
    """What encloses the environment's processes.

    Args:
        kind: `docker`, `podman`, `kubernetes`, `apptainer` or plain `container`; empty outside one.
        memory_limit_bytes: The lowest limit of the control groups; None if there is none.
    """

    kind: str = ""
    memory_limit_bytes: int | None = None


@keyword_value
class LimitsFact(Fact):
    """Soft limits of the judging process; None where there is no limit.

    Args:
        memlock_bytes: Memory that it may lock.
        open_files: Files that it may hold open.
        capabilities: Effective capabilities that bear on memory and debugging, such as
            `CAP_IPC_LOCK`.
    """

    memlock_bytes: int | None = None
    open_files: int | None = None
    capabilities: tuple[str, ...] = ()


@keyword_value
class UserFact(Fact):
    """The user that the environment's processes run as.

    Args:
        uid: Numeric id.
        has_passwd_entry: True if the id has a name in the user database.
        name: Name that the user database gives the id; None if it has none or nobody looked.
        home: Home folder by HOME or the user database; None if neither names one.
        home_writable: True if files can be made in it.
    """

    uid: int
    has_passwd_entry: bool
    name: str | None = None
    home: str | None = None
    home_writable: bool = False


@keyword_value
class VariablesFact(Fact):
    """Environment variables that change how Python, the loader, CUDA or torch behave.

    Args:
        values: Pairs of name and value, sorted by name; a variable that is not set is not listed.
    """

    values: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """Return a variable's value, or None if it is not set."""
        return dict(self.values).get(name)


@keyword_value
class MigDevice:
    """One slice of a GPU in MIG mode."""

    uuid: str
    memory_bytes: int | None = None


@keyword_value
class GpuProcess:
    """A process that holds memory of a GPU.

    Args:
        pid: As NVML tells it, in the process namespace of whoever asks.
        name: Name of its program; empty if it cannot be seen from here.
        memory_bytes: None if the driver does not say.
        is_orphan: True if its parent is gone (it was adopted by the first process).
    """

    pid: int
    name: str = ""
    memory_bytes: int | None = None
    is_orphan: bool = False


@keyword_value
class Gpu:
    """One GPU as NVML shows it.

    Args:
        index: In NVML's order.
        name: Product name.
        capability: Compute capability, `major.minor`.
        memory_bytes: All its memory.
        uuid: Such as `GPU-5d...`; empty if NVML does not say.
        memory_used_bytes: None if NVML does not say.
        is_mig: True if it is in MIG mode.
        mig_devices: Its slices; None if it is in MIG mode but they could not be listed.
        fabric: State of its NVLink fabric: `completed`, `in_progress`, `not_started`,
            `not_supported`, or empty if NVML does not say.
        processes: Those that hold its memory.
    """

    index: int
    name: str
    capability: str
    memory_bytes: int
    uuid: str = ""
    memory_used_bytes: int | None = None
    is_mig: bool = False
    mig_devices: tuple[MigDevice, ...] | None = ()
    fabric: str = ""
    processes: tuple[GpuProcess, ...] = ()


@keyword_value
class NvidiaFact(Fact):
    """NVIDIA hardware and driver.

    Args:
        num_devices: Devices seen in sysfs or /dev, whether or not a driver serves them.
        driver: Driver version such as `580.65.06`; None if no driver answers.
        cuda: Highest CUDA version the driver serves, such as `13.0`.
        gpus: As NVML lists them.
        error: What NVML said when it failed; empty otherwise.
        error_code: NVML's number for it; None if NVML was not asked or did not answer.
        library: Version of the user-space driver libraries, from the name of the file behind
            `libnvidia-ml.so.1` or `libcuda.so.1`; None if neither was found.
        library_path: The file that `library` was read from.
    """

    num_devices: int
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    error: str = ""
    error_code: int | None = None
    library: str | None = None
    library_path: str | None = None


@keyword_value
class CudaStartFact(Fact):
    """What CUDA answered when it was started, which only a probe or a snapshot can tell.

    Args:
        code: Result of `cuInit`; 0 is success, None if nobody started it.
        name: The name that CUDA gives it.
        num_devices: GPUs that it lists.
        runtime_code: Result of the first call into the runtime, such as 35.
        runtime_name: The name that CUDA gives it.
    """

    code: int | None = None
    name: str = ""
    num_devices: int = 0
    runtime_code: int = 0
    runtime_name: str = ""


@keyword_value
class NetworkFact(Fact):
    """Devices that NCCL and Gloo may be told to use.

    Args:
        interfaces: Names of network interfaces, such as `eth0`.
        hcas: Names of RDMA devices, such as `mlx5_0`; None if they could not be listed.
    """

    interfaces: tuple[str, ...]
    hcas: tuple[str, ...] | None = None


@keyword_value
class NcclFile:
    """Settings in one of NCCL's configuration files, in their order."""

    path: str
    settings: tuple[tuple[str, str], ...]


@keyword_value
class NcclFilesFact(Fact):
    """NCCL's configuration files that are there, the one that wins first."""

    files: tuple[NcclFile, ...] = ()


@keyword_value
class NcclPluginsFact(Fact):
    """Network plugins that NCCL would find: in the loader's folders, or named by their path.

    Args:
        paths: Their files.
    """

    paths: tuple[str, ...] = ()


@keyword_value
class ServicesFact(Fact):
    """Services of the host that GPUs depend on.

    Args:
        states: Pairs of name and state (`running`, `stopped`, or what a snapshot says).
    """

    states: tuple[tuple[str, str], ...] = ()


@keyword_value
class KernelLogFact(Fact):
    """Lines of the kernel's log that speak of NVIDIA devices or of killed processes."""

    lines: tuple[str, ...] = ()
