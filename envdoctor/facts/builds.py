"""Readings of what builds beside the usual are for: companions of torch, GPUs of other vendors."""

from __future__ import annotations

from envdoctor.facts.fact import Fact
from envdoctor.value import keyword_value


@keyword_value
class CompanionBuild:
    """A package that is compiled against one torch.

    Args:
        name: Distribution name, such as `torchvision`.
        path: The file that was read.
        version: Its version with the local tag, such as `0.25.0+cu128`; empty if unknown.
        torch: The torch it was built against, such as `2.10.0+cu128`; empty if it does not say.
        cuda: The CUDA it was built for, such as `12.8`; empty if it does not say or there is none.
    """

    name: str
    path: str
    version: str = ""
    torch: str = ""
    cuda: str = ""


@keyword_value
class CompanionBuildsFact(Fact):
    """What torchvision, torchaudio and xformers say about their build."""

    builds: tuple[CompanionBuild, ...]


@keyword_value
class OtherGpusFact(Fact):
    """GPUs that are not NVIDIA's.

    Args:
        has_amd: True if AMD's compute driver is loaded.
    """

    has_amd: bool = False
