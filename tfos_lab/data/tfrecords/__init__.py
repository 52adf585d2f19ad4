"""TFRecord files without a JAR: ``df.write.format("tfrecord")``, ``spark.read.format("tfrecord")``, and two functions.

`tables` has the functions, `source` is Spark's data source, `reading` and `writing` do its work. `encode` and `decode`
(with `parse`), `framing`, `varints` and `crc32c` convert between Arrow batches and the bytes of files. They use NumPy
and Arrow on all rows of a batch at once, and no TensorFlow.
"""
