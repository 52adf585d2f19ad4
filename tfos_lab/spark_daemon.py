"""pyspark's daemon, which keeps what its tasks leave behind below the executor: ``spark.python.daemon.module``.

Nodes outlive the tasks that start them, and warm processes outlive the nodes. Where this module is the daemon, all of
them stay in the executor's tree of processes, and so in the books of a YARN container, which count by that tree;
otherwise they become children of the host's first process.

Python imports it on executors before Spark runs anything there: tfos_lab has to be installed in their environment.
"""

from pyspark import daemon

from tfos_lab.core.processes import adopt_orphans

if __name__ == "__main__":
    adopt_orphans()
    daemon.manager()
