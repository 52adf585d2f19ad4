"""The modules of TensorFlowOnSpark 2.2.5, with its names and signatures, over this package's engine."""

from __future__ import annotations

from tfos_lab.compat.installation import install

# The release whose interface this is.
__version__ = "2.2.5"

__all__ = ["__version__", "install"]
