"""tfos_lab compared with TensorFlowOnSpark and spark-tensorflow-distributor, side by side in one run.

Both sides have a Spark standalone cluster of the same shape and the same rows, and take turns. The peers are installed
in their own environment, with the newest Spark and TensorFlow that they support (`environment`). A process there
(`inside`) answers the suite's requests (`peer`).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import Row, not_measured
from benchmarks.peers import feed, objects, startup, tfrecords
from benchmarks.peers.environment import PeersMissing, find_python
from benchmarks.peers.rig import side_by_side


def measure() -> Iterator[Row]:
    """Compare the feed, TFRecord files and start-up; a single row says why if the peers cannot be installed."""
    try:
        python = find_python()
    except PeersMissing as why:
        yield not_measured("beside TensorFlowOnSpark and spark-tensorflow-distributor", why)
        return
    with side_by_side(python, executors=2) as rig:
        yield from feed.measure(rig)
        yield from objects.measure(rig)
        yield from tfrecords.measure(rig)
    with side_by_side(python, executors=4) as rig:
        yield from startup.measure(rig)
