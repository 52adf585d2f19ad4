"""`install`: from then on, ``import tensorflowonspark`` means this package, here, on executors and on nodes."""

from __future__ import annotations

import functools
import logging
from importlib.machinery import PathFinder

from tfos_lab.compat.alias import THEIRS, make_alias
from tfos_lab.compat.executors import reach_executors
from tfos_lab.core.payload import prepare_nodes

logger = logging.getLogger(__name__)


@functools.cache
def install() -> None:
    """Make ``import tensorflowonspark`` mean `tfos_lab.compat`.

    It does so in this process, in Spark's Python workers, and on the nodes of clusters that are started from now on.
    Call it before the first import of ``tensorflowonspark``; whether there is a SparkContext yet makes no difference.
    A TensorFlowOnSpark that is installed is not used, which is logged as a warning. Further calls do nothing.

    Examples
    --------
    >>> import tfos_lab.compat
    >>> tfos_lab.compat.install()
    >>> from tensorflowonspark import TFNode
    >>> TFNode.__name__
    'tfos_lab.compat.TFNode'
    """
    real = PathFinder.find_spec(THEIRS)
    if real is not None:
        logger.warning("%s is installed (%s), but means tfos_lab.compat now", THEIRS, real.origin)
    make_alias()
    prepare_nodes(make_alias)
    reach_executors()
