"""What a node's function returned, as bytes that are safe to read.

A node is not trusted with the notebook: nothing that arrives is ever unpickled on the driver. So plain data travels
as MessagePack (numbers, text, bytes, containers, dates, paths, NumPy arrays, pandas and Arrow tables), and anything
else as a `RemoteObject`: its text, and sealed bytes that only its `load` opens, when the user says so.

What changes on the way: a TensorFlow tensor or variable becomes a NumPy array, a Keras ``History`` its ``history``
dict, and a subclass of a container a plain one (named tuples stay named tuples).
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
