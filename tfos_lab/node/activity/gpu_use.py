"""How busy the GPUs of a node are, as NVIDIA's management library says; where there is none, nothing is known."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence

_LIBRARY = "libnvidia-ml.so.1"


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuUse:
    """Reads the use of some GPUs.

    Parameters
    ----------
    gpus : sequence of str
        Their numbers or UUIDs, as in CUDA_VISIBLE_DEVICES; none of them, and no library is loaded.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        self._library: ctypes.CDLL | None = None
        self._handles: list[ctypes.c_void_p] = []
        if gpus:
            with contextlib.suppress(OSError, AttributeError):
                self._library = ctypes.CDLL(_LIBRARY)
                if self._library.nvmlInit_v2() == 0:
                    self._handles = [handle for gpu in gpus if (handle := _handle(self._library, gpu)) is not None]

    def read(self) -> tuple[float | None, int | None]:
        """Return the mean use, 0 to 1, and the bytes in use by anyone on all of them; None where not known."""
        uses, used_bytes = [], []
        for handle in self._handles:
            assert self._library is not None
            use, memory = _Utilization(), _Memory()
            if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use)) == 0:
                uses.append(use.gpu / 100)
            if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
                used_bytes.append(int(memory.used))
        return (sum(uses) / len(uses) if uses else None), (sum(used_bytes) if used_bytes else None)

    def close(self) -> None:
        """Let go of the library."""
        if self._handles and self._library is not None:
            self._library.nvmlShutdown()
        self._handles = []


def _handle(library: ctypes.CDLL, gpu: str) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    if gpu.isdigit():
        status = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(gpu)), ctypes.byref(handle))
    else:
        status = library.nvmlDeviceGetHandleByUUID(ctypes.c_char_p(gpu.encode()), ctypes.byref(handle))
    return handle if status == 0 else None
