"""Which environment variables tell one fork server from another: those that are read while it starts and imports."""

from __future__ import annotations

from collections.abc import Mapping

# Prefixes of variables that TensorFlow, Keras or the dynamic loader read while they are imported. A node with other
# values needs another fork server.
_IMPORT_TIME_PREFIXES = (
    "TF_",
    "KERAS_",
    "XLA_",
    "CUDA_HOME",
    "CUDA_PATH",
    "LD_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "NCCL_",
    "GRPC_",
    "PROTOCOL_BUFFERS_",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
)
# A fork server that outlives its kernel is started with these alone, so that it holds nothing else of that kernel.
_PYTHON_PREFIXES = ("PYTHON", "LD_", "LANG", "LC_", "TZ", "HOME", "TMPDIR", "LOCAL_DIRS", "MALLOC_", "GLIBC_TUNABLES")
_LIBRARY_PREFIXES = ("TF2_", "CUDA_", "NVIDIA_", "KMP_", "GOMP_", "NPY_", "NUMEXPR_", "ARROW_", "ABSL_", "AUTOGRAPH_")
# Differs from node to node, so it must not choose the fork server.
NEVER = ("TF_CONFIG",)
# TensorFlow, and scikit-learn where Keras imports it, set these while they are imported. A kernel that has imported
# them needs no other fork server than before: that one has imported them, too.
_SET_BY_IMPORTS = {"TF2_BEHAVIOR": "1", "KMP_INIT_AT_FORK": "FALSE", "KMP_DUPLICATE_LIB_OK": "True"}


def import_environ_of(environ: Mapping[str, str], extra_env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must be set before TensorFlow is imported; all of ``extra_env`` counts."""
    return dict(sorted({**_chosen(environ, _IMPORT_TIME_PREFIXES), **extra_env}.items()))


def whole_environ_of(environ: Mapping[str, str], extra_env: Mapping[str, str], *, tensorflow: bool) -> dict[str, str]:
    """Return all variables, but for ``PATH``, that a fork server which outlives its kernel is started with."""
    if not tensorflow:
        return _chosen(environ, _PYTHON_PREFIXES)
    chosen = _chosen(environ, (*_PYTHON_PREFIXES, *_LIBRARY_PREFIXES))
    return dict(sorted({**chosen, **import_environ_of(environ, extra_env)}.items()))


def _chosen(environ: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {
        key: value
        for key, value in sorted(environ.items())
        if key.startswith(prefixes) and key not in NEVER and _SET_BY_IMPORTS.get(key) != value
    }
