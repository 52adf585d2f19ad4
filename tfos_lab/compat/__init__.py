"""The modules of TensorFlowOnSpark 2.2.5, with its names and signatures, over this package.

`MirroredStrategyRunner` is that of spark-tensorflow-distributor.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.alias import install

if TYPE_CHECKING:
    from tfos_lab.compat.mirrored import MirroredStrategyRunner

# TensorFlowOnSpark does this when it is imported, and its programs count on it: their own `logging.info` lines appear.
# Those who use `tfos_lab.ml`, which imports this package for its own ends, have not asked for them.
_FORMAT = "%(asctime)s %(levelname)s (%(threadName)s-%(process)d) %(message)s"
if "tfos_lab.ml" not in sys.modules:
    logging.basicConfig(format=_FORMAT, level=logging.INFO)

# The release whose interface this is.
__version__ = "2.2.5"

__all__ = ["MirroredStrategyRunner", "__version__", "install"]


def __getattr__(name: str) -> Any:
    # Of spark-tensorflow-distributor, and no module of TensorFlowOnSpark's: loaded when it is used.
    if name == "MirroredStrategyRunner":
        from tfos_lab.compat.mirrored import MirroredStrategyRunner

        return MirroredStrategyRunner
    raise AttributeError(f"module 'tfos_lab.compat' has no attribute {name!r}")
