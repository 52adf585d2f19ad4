# Read by Spark's scripts when `tfos-lab demo` or `tfos-lab lab` starts them, and by nobody else.
# Without this, all that Spark's JVM writes (warnings of its start, progress bars) ends up below a notebook's cells.
if [ -n "${TFOS_LAB_SPARK_LOG:-}" ]; then
  exec 2>>"$TFOS_LAB_SPARK_LOG"
fi
