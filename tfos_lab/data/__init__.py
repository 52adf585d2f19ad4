"""Data for the nodes: example data sets, the table of types, and batches as NumPy arrays.

`mnist` and `titanic` load what the tutorials use. The feed is built on `schema` (which tensor a column becomes, by
`type_table`), `prepare` (a DataFrame ready to be fed) and `batches` (Arrow record batches as arrays). `tfrecords` reads
and writes TFRecord files with Spark.
"""

from tfos_lab.data.datasets.mnist import ImageData, mnist
from tfos_lab.data.datasets.titanic import TableData, titanic
from tfos_lab.data.tfrecords.source import register as register_tfrecords
from tfos_lab.data.tfrecords.tables import read_tfrecords, write_tfrecords

__all__ = [
    "ImageData",
    "TableData",
    "mnist",
    "read_tfrecords",
    "register_tfrecords",
    "titanic",
    "write_tfrecords",
]
