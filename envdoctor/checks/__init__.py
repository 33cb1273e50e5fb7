"""Judge facts; read nothing. A check exists by being listed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.checks.driver import (
    driver_too_old_for_cuda,
    gpu_arch_not_in_build,
    no_nvidia_driver,
)
from envdoctor.checks.files import package_files_damaged, package_without_record
from envdoctor.checks.host import disk_almost_full, shared_memory_too_small
from envdoctor.checks.hygiene import duplicate_distribution, interrupted_uninstall_leftover
from envdoctor.checks.packages import (
    package_version_not_pinned,
    package_without_libraries,
    required_package_missing,
)
from envdoctor.checks.strays import stray_module, stray_package
from envdoctor.checks.suppressions import suppression_without_effect
from envdoctor.checks.torch import (
    cpu_torch_on_gpu_machine,
    cuda_torch_without_gpu,
    torch_not_installed,
    torch_not_of_profile,
)

if TYPE_CHECKING:
    from envdoctor.check import Check

BUILTIN_CHECKS: tuple[Check, ...] = (
    torch_not_installed,
    torch_not_of_profile,
    cpu_torch_on_gpu_machine,
    cuda_torch_without_gpu,
    no_nvidia_driver,
    driver_too_old_for_cuda,
    gpu_arch_not_in_build,
    required_package_missing,
    package_version_not_pinned,
    package_without_libraries,
    package_files_damaged,
    package_without_record,
    stray_package,
    stray_module,
    duplicate_distribution,
    interrupted_uninstall_leftover,
    shared_memory_too_small,
    disk_almost_full,
    suppression_without_effect,
)
"""Every check, in an order in which prerequisites come first."""
