"""TFRecord files without a JAR: ``df.write.format("tfrecord")``, ``spark.read.format("tfrecord")``, and two functions.

`tables` has the functions, `source` the format that Spark knows; `reading` and `writing` do its work. `codecs` converts
between Arrow batches and records; `framing` and `byte_columns` do the rest. They use NumPy and Arrow on all rows at
once, and no TensorFlow, but for records that are valid and written in no usual way.
"""
