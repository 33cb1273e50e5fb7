"""Environment doctor and reproducible-environment builder for PyTorch/CUDA."""

__version__ = "0.1.0"
