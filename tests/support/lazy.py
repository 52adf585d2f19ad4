"""What a test file imports when its tests run: each process of a suite reads all files, and runs the tests of few."""

import importlib
from functools import reduce


class Lazy:
    """A package, or a dotted name in one, that is imported when something of it is first asked for."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):  # pytest asks each name of a file whether it is a test
            raise AttributeError(name)
        package, *path = self._name.split(".")
        return getattr(reduce(getattr, path, importlib.import_module(package)), name)
