"""Judge facts; read nothing. A check exists by being listed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.checks.container import container_memory_too_small, locked_memory_limit
from envdoctor.checks.driver import (
    driver_library_mismatch,
    driver_too_old_for_cuda,
    no_nvidia_driver,
)
from envdoctor.checks.files import package_files_damaged, package_without_record
from envdoctor.checks.gpu import gpu_arch_not_in_build, gpu_fabric_not_ready, gpu_memory_held
from envdoctor.checks.hazards import fx_tracing_race
from envdoctor.checks.host import (
    disk_almost_full,
    glibc_too_old,
    gpu_fault_in_kernel_log,
    shared_memory_too_small,
)
from envdoctor.checks.hygiene import duplicate_distribution, interrupted_uninstall_leftover
from envdoctor.checks.nccl import (
    debugging_variable_left,
    network_interface_not_found,
    rdma_device_not_found,
)
from envdoctor.checks.packages import (
    package_version_not_pinned,
    package_without_libraries,
    required_package_missing,
)
from envdoctor.checks.ptxas import ptxas_not_executable, ptxas_too_old
from envdoctor.checks.strays import stray_module, stray_package
from envdoctor.checks.suppressions import suppression_without_effect
from envdoctor.checks.toolchain import no_c_compiler, python_headers_missing, user_without_name
from envdoctor.checks.torch import (
    cpu_torch_on_gpu_machine,
    cuda_torch_without_gpu,
    torch_not_installed,
    torch_not_of_profile,
)
from envdoctor.checks.visibility import visible_device_not_found, visible_devices_by_uuid

if TYPE_CHECKING:
    from envdoctor.check import Check

BUILTIN_CHECKS: tuple[Check, ...] = (
    torch_not_installed,
    torch_not_of_profile,
    cpu_torch_on_gpu_machine,
    cuda_torch_without_gpu,
    driver_library_mismatch,
    no_nvidia_driver,
    driver_too_old_for_cuda,
    gpu_arch_not_in_build,
    gpu_fabric_not_ready,
    gpu_memory_held,
    gpu_fault_in_kernel_log,
    visible_device_not_found,
    visible_devices_by_uuid,
    required_package_missing,
    package_version_not_pinned,
    package_without_libraries,
    package_files_damaged,
    package_without_record,
    stray_package,
    stray_module,
    duplicate_distribution,
    interrupted_uninstall_leftover,
    no_c_compiler,
    python_headers_missing,
    ptxas_too_old,
    ptxas_not_executable,
    user_without_name,
    fx_tracing_race,
    network_interface_not_found,
    rdma_device_not_found,
    debugging_variable_left,
    shared_memory_too_small,
    container_memory_too_small,
    locked_memory_limit,
    glibc_too_old,
    disk_almost_full,
    suppression_without_effect,
)
"""Every check, in an order in which prerequisites come first."""
