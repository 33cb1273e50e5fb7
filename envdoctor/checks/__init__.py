"""Judge facts; read nothing. A check exists by being listed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.checks.abi import package_for_another_python
from envdoctor.checks.agreement import engines_pin_different_torch, requirement_not_met
from envdoctor.checks.cache_entries import damaged_cache_entry, stale_compile_cache
from envdoctor.checks.caches import (
    cache_folder_not_writable,
    cache_folder_open_to_all,
    cache_path_with_space,
    stray_cache_left,
)
from envdoctor.checks.companions import companion_for_another_torch, flashinfer_versions_differ
from envdoctor.checks.compile_caches import compile_cache_not_valid
from envdoctor.checks.container import container_memory_too_small, locked_memory_limit
from envdoctor.checks.cuda_runtime import two_cuda_runtimes
from envdoctor.checks.cuda_start import cuda_does_not_start
from envdoctor.checks.driver import (
    driver_library_mismatch,
    driver_too_old_for_cuda,
    no_nvidia_driver,
)
from envdoctor.checks.driver_library import libcuda_is_stub, libcuda_missing, libcuda_shadowed
from envdoctor.checks.files import package_files_damaged
from envdoctor.checks.gpu import gpu_arch_not_in_build, gpu_fabric_not_ready, gpu_memory_held
from envdoctor.checks.hazards import fx_tracing_race
from envdoctor.checks.host import (
    disk_almost_full,
    glibc_too_old,
    gpu_fault_in_kernel_log,
    shared_memory_too_small,
)
from envdoctor.checks.hygiene import (
    duplicate_distribution,
    editable_source_gone,
    interrupted_uninstall_leftover,
)
from envdoctor.checks.imports import (
    module_shadowed,
    namespace_package_closed,
    startup_file_edits_path,
)
from envdoctor.checks.linking import extension_for_another_torch, libstdcxx_too_old
from envdoctor.checks.loader import lib_lib64_split, needed_library_not_found
from envdoctor.checks.metadata import torch_version_disagrees
from envdoctor.checks.nccl import (
    debugging_variable_left,
    network_interface_not_found,
    rdma_device_not_found,
)
from envdoctor.checks.nccl_plugin import nccl_plugin_not_found
from envdoctor.checks.ownership import cuda_package_orphaned, package_files_overwritten
from envdoctor.checks.packages import (
    package_version_not_pinned,
    package_without_libraries,
    required_package_missing,
)
from envdoctor.checks.probed_gpus import (
    compiled_attention_fails,
    compiled_attention_not_fused,
    gpu_all_reduce_fails,
    gpu_computation_fails,
)
from envdoctor.checks.probes import (
    cudnn_refused_by_torch,
    library_loaded_from_elsewhere,
    torch_import_fails,
    torch_sees_no_gpu,
)
from envdoctor.checks.ptxas import ptxas_not_executable, ptxas_too_old
from envdoctor.checks.records import (
    package_metadata_edited,
    package_without_record,
    record_not_followed,
)
from envdoctor.checks.runs import dense_attention_too_large, run_layout_refused
from envdoctor.checks.runtimes import torch_of_conda_and_pip, two_openmp_runtimes
from envdoctor.checks.shadowing import cudnn_from_two_places, library_shadowed
from envdoctor.checks.storage import cache_folder_not_executable, temporary_folder_full
from envdoctor.checks.strays import stray_module, stray_package
from envdoctor.checks.suppressions import suppression_without_effect
from envdoctor.checks.toolchain import no_c_compiler, python_headers_missing, user_without_name
from envdoctor.checks.torch import (
    cpu_torch_on_gpu_machine,
    cuda_torch_without_gpu,
    torch_not_installed,
    torch_not_of_profile,
)
from envdoctor.checks.venv import (
    launcher_of_another_python,
    python_home_set,
    scripts_start_another_python,
    venv_python_changed,
    venv_python_gone,
)
from envdoctor.checks.visibility import (
    mig_mode_without_slices,
    visible_device_not_found,
    visible_devices_by_uuid,
)

if TYPE_CHECKING:
    from envdoctor.check import Check

BUILTIN_CHECKS: tuple[Check, ...] = (
    venv_python_gone,
    venv_python_changed,
    torch_not_installed,
    module_shadowed,
    namespace_package_closed,
    torch_version_disagrees,
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
    mig_mode_without_slices,
    required_package_missing,
    package_version_not_pinned,
    package_without_libraries,
    engines_pin_different_torch,
    requirement_not_met,
    companion_for_another_torch,
    flashinfer_versions_differ,
    package_for_another_python,
    package_files_damaged,
    package_files_overwritten,
    package_metadata_edited,
    package_without_record,
    record_not_followed,
    lib_lib64_split,
    needed_library_not_found,
    library_shadowed,
    cudnn_from_two_places,
    libstdcxx_too_old,
    extension_for_another_torch,
    two_cuda_runtimes,
    cuda_package_orphaned,
    libcuda_missing,
    libcuda_is_stub,
    libcuda_shadowed,
    cuda_does_not_start,
    stray_package,
    stray_module,
    duplicate_distribution,
    interrupted_uninstall_leftover,
    editable_source_gone,
    startup_file_edits_path,
    scripts_start_another_python,
    launcher_of_another_python,
    python_home_set,
    torch_of_conda_and_pip,
    two_openmp_runtimes,
    no_c_compiler,
    python_headers_missing,
    ptxas_too_old,
    ptxas_not_executable,
    user_without_name,
    cache_folder_not_writable,
    cache_folder_open_to_all,
    cache_path_with_space,
    stale_compile_cache,
    damaged_cache_entry,
    compile_cache_not_valid,
    stray_cache_left,
    fx_tracing_race,
    run_layout_refused,
    dense_attention_too_large,
    network_interface_not_found,
    rdma_device_not_found,
    nccl_plugin_not_found,
    debugging_variable_left,
    shared_memory_too_small,
    container_memory_too_small,
    locked_memory_limit,
    glibc_too_old,
    disk_almost_full,
    temporary_folder_full,
    cache_folder_not_executable,
    torch_import_fails,
    torch_sees_no_gpu,
    cudnn_refused_by_torch,
    library_loaded_from_elsewhere,
    gpu_computation_fails,
    gpu_all_reduce_fails,
    compiled_attention_fails,
    compiled_attention_not_fused,
    suppression_without_effect,
)
"""Every check, in an order in which prerequisites come first."""
