"""Assay finds GPU kernels that are right, fast and honest, and proves it."""

__version__ = "0.1.0"
