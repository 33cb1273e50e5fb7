"""Which GPUs CUDA_VISIBLE_DEVICES leaves to a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.value import keyword_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from envdoctor.facts import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
_NONE_WANTED = frozenset({"", "-1", "none", "void", "nodevfiles"})


@keyword_value
class VisibleDevices:
    """What one value of CUDA_VISIBLE_DEVICES means on one machine.

    Args:
        gpus: The GPUs that CUDA lists, in its order; a slice of a GPU stands for its GPU.
        unknown: The first entry that names no device; CUDA ignores it and all that follow.
        by_uuid: Entries that name a device by its UUID.
        hides_all: True if the value says that no GPU is wanted.
    """

    gpus: tuple[Gpu, ...] = ()
    unknown: str = ""
    by_uuid: tuple[str, ...] = ()
    hides_all: bool = False


def visible_devices(value: str | None, gpus: Sequence[Gpu]) -> VisibleDevices:
    """Read a value of CUDA_VISIBLE_DEVICES as CUDA does.

    Source: CUDA C++ Programming Guide, environment variables: entries are indexes or (beginnings
    of) UUIDs; of a list, only what stands before the first invalid entry is visible.

    Args:
        value: The variable's value; None if it is not set.
        gpus: The machine's GPUs.
    """
    if value is None:
        return VisibleDevices(gpus=tuple(gpus))
    entries = [entry.strip() for entry in value.rstrip(", ").split(",")]
    if entries[0].lower() in _NONE_WANTED:
        return VisibleDevices(hides_all=True)
    found: list[Gpu] = []
    by_uuid: list[str] = []
    for entry in entries:
        gpu = next(_named_by(entry, gpus), None)
        if gpu is None:
            return VisibleDevices(gpus=tuple(found), unknown=entry, by_uuid=tuple(by_uuid))
        found.append(gpu)
        if not entry.isdecimal():
            by_uuid.append(entry)
    return VisibleDevices(gpus=tuple(found), by_uuid=tuple(by_uuid))


def _named_by(entry: str, gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    """Yield the GPUs that an entry names: by index, UUID, or UUID of a slice."""
    if entry.isdecimal():
        yield from gpus[int(entry) : int(entry) + 1]
        return
    is_named = {"GPU": _has_uuid, "MIG": _has_slice}.get(entry.partition("-")[0].upper())
    if is_named:
        yield from (gpu for gpu in gpus if is_named(gpu, entry))


def _has_uuid(gpu: Gpu, entry: str) -> bool:
    return not gpu.uuid or _begins(gpu.uuid, entry)  # one that NVML did not tell may be the one


def _has_slice(gpu: Gpu, entry: str) -> bool:
    # Before driver 470 a slice was named MIG-GPU-<uuid of its GPU>/<instance>/<instance>.
    if entry.upper().startswith("MIG-GPU-"):
        return _begins(gpu.uuid, entry[len("MIG-") :].partition("/")[0])
    if gpu.mig_devices is None:
        return True  # they could not be listed, so it may be one of them
    return any(_begins(device.uuid, entry) for device in gpu.mig_devices)


def _begins(uuid: str, entry: str) -> bool:
    return bool(uuid) and uuid.lower().startswith(entry.lower())
