"""What fork servers import before they fork: everything that is slow, but nothing that uses threads or devices."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import ssl

# What agents and children import themselves.
_OF_AGENTS = ("node.agent", "node.child", "node.feed.files.search", "node.feed.endpoint", "node.tensorboard")
_OF_CHILDREN = (
    *("core.payload", "node.child", "node.feed.dataset", "node.files.payload", "node.files.result", "node.invoke"),
    "node.session",
)


def preload(kind: str) -> None:
    """Import what processes of a ``"plain"`` or ``"tensorflow"`` fork server need."""
    gc.disable()  # an import leaves little garbage; to look for it takes a quarter of the time
    if kind == "tensorflow":
        _preload_tensorflow()
    else:
        _preload_plain()
    gc.collect()
    gc.freeze()  # else a garbage collection in a forked process would copy the pages of these objects
    gc.enable()


def _preload_plain() -> None:
    _import(_OF_AGENTS)
    # What Python and OpenSSL load when they are first used takes an agent half of the time until it has reserved.
    socket.getaddrinfo("127.0.0.1", 0)
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _preload_tensorflow() -> None:
    """Import TensorFlow, its Keras, and what reading a feed needs, without touching a device or running an op."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    import pyarrow as pa  # noqa: F401

    from tfos_lab.core.lazy_imports import lazy_parts_of_keras

    with lazy_parts_of_keras():
        _import_tensorflow()
    from tfos_lab.node.keras.workers import patch_keras

    patch_keras()
    from tfos_lab.node.remote_files import register_file_systems

    register_file_systems()
    _import(_OF_CHILDREN)


def _import(modules: tuple[str, ...]) -> None:
    for name in modules:
        importlib.import_module(f"tfos_lab.{name}")


def _import_tensorflow() -> None:
    import tensorflow as tf

    # TensorFlow loads these lazily: load them once, in the fork server.
    for name in ("data", "distribute", "io", "nn", "optimizers", "summary", "train"):
        getattr(tf, name, None)
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    with contextlib.suppress(ImportError):  # Keras is optional
        if legacy:
            import tf_keras  # noqa: F401
        else:
            import keras  # noqa: F401
