"""TFRecord files without a JAR: ``df.write.format("tfrecord")``, ``spark.read.format("tfrecord")``, and two functions.

`tables` has the functions, `source` is what Spark knows, `reading` and `writing` do its work. Between Arrow batches and
the bytes of files stand `encode` and `decode` (with `parse`), `framing`, `varints` and `crc32c`: NumPy and Arrow, which
handle all rows at once, and no TensorFlow.
"""
