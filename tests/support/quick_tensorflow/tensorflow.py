"""Stands in for TensorFlow where a test is about processes only: its import takes no seconds."""

__version__ = "0"


class distribute:  # noqa: N801 - TensorFlow's own name
    """What a fork server looks for."""

    class MultiWorkerMirroredStrategy:
        """A strategy that nobody uses."""

        def experimental_distribute_dataset(self, dataset, options=None):
            """Do nothing."""
            return dataset

    class Server:
        """A server that nobody starts."""

        def join(self):
            """Do nothing."""


class random:  # noqa: N801 - TensorFlow's own name
    """What a fork server looks for, too."""
