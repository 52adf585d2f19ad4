"""Data for the nodes: example data sets, the table of types, and batches as NumPy arrays.

`mnist` and `titanic` load what the tutorials use. The feed is built on `schema` (which tensor a column becomes, by
`type_table`), `prepare` (a DataFrame ready to be fed) and `batches` (Arrow record batches as arrays).
"""

from tfos_lab.data.mnist import ImageData, mnist
from tfos_lab.data.titanic import TableData, titanic

__all__ = ["ImageData", "TableData", "mnist", "titanic"]
