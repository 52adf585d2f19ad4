r"""Writes MNIST for the other programs; the same as ``tfos-lab mnist setup``, for spark-submit.

    spark-submit --master spark://host:7077 examples/mnist/data_setup.py --format csv --output mnist/csv

The folder has to be on a file system that all executors share.
"""

import sys

from tfos_lab.cli import mnist

if __name__ == "__main__":
    sys.exit(mnist.run(["setup", *sys.argv[1:]]))
