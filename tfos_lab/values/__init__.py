"""Encodes what a node's function returned as bytes that are safe to decode.

The driver does not trust the nodes, and never unpickles what they send. Plain data is sent as MessagePack: numbers,
text, bytes, containers, dates, paths, NumPy arrays, pandas and Arrow tables. Any other object arrives as a
`RemoteObject`: its text, and pickled bytes that only its `load` unpickles, when the user calls it.

A TensorFlow tensor or variable becomes a NumPy array, a Keras ``History`` its ``history`` dict, and an instance of a
container's subclass a plain container (named tuples stay named tuples).
"""

from tfos_lab.values.decode import decode_value
from tfos_lab.values.encode import LIMIT_BYTES, encode_value
from tfos_lab.values.remote import RemoteObject
from tfos_lab.values.text import describe

__all__ = [
    "LIMIT_BYTES",
    "RemoteObject",
    "decode_value",
    "describe",
    "encode_value",
]
