"""The modules of TensorFlowOnSpark 2.2.5, with its names and signatures, over this package's engine."""

from __future__ import annotations

import logging

from tfos_lab.compat.installation import install

# TensorFlowOnSpark does this when it is imported, and its programs count on it: their own `logging.info` lines appear.
_FORMAT = "%(asctime)s %(levelname)s (%(threadName)s-%(process)d) %(message)s"
logging.basicConfig(format=_FORMAT, level=logging.INFO)

# The release whose interface this is.
__version__ = "2.2.5"

__all__ = ["__version__", "install"]
