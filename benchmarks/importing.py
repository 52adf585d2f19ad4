"""``import tfos_lab``: fast, and without importing heavy packages."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.by_hand import run_python
from benchmarks.measure import Row, median, seconds_of

_RUNS = 7
_HEAVY = "tensorflow,pyspark,IPython"
_CODE = (
    "import sys, time; t = time.perf_counter(); import tfos_lab; s = time.perf_counter() - t;"
    f"print(s, [m for m in '{_HEAVY}'.split(',') if m in sys.modules])"
)


def measure() -> Iterator[Row]:
    """Time the import in fresh interpreters, compared with an import of TensorFlow."""
    times, heavy = [], set()
    for _ in range(_RUNS):
        seconds, _, loaded = run_python(_CODE).communicate()[0].partition(" ")
        times.append(float(seconds))
        heavy.add(loaded.strip())
    tensorflow_s = median([seconds_of(lambda: run_python("import tensorflow").communicate()) for _ in range(3)])
    met = median(times) < 0.3 and heavy == {"[]"}
    yield Row("import tfos_lab (beside: import tensorflow)", "s", median(times), tensorflow_s, "< 0.3 s", met, _RUNS)
