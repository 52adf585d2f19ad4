"""Packing a function with what it captures: what arrives, and what is refused with which message."""

from __future__ import annotations

import functools
import inspect
import io
import linecache
import socket
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest

from tfos_lab.errors import PayloadError
from tfos_lab.payload.packing import captured_sizes, pack, unpack


def notebook(source: str, **names: Any) -> dict[str, Any]:
    """Run source as a notebook cell would run it, and return the notebook's names."""
    space = {"__name__": "__main__", **names}
    filename = "<ipython-input-3-0123456789ab>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), space)
    return space


def refusal_of(value: Any) -> str:
    space = notebook("def map_fun(args, ctx):\n    return thing\n", thing=value)
    with pytest.raises(PayloadError) as error:
        pack(space["map_fun"], None)
    assert error.value.name.startswith("thing")
    return str(error.value)


def test_a_notebook_function_arrives_with_the_names_it_uses() -> None:
    space = notebook(
        "def helper(x):\n    return x * rate\ndef map_fun(args, ctx):\n    return helper(args['x'])\n", rate=3
    )
    map_fun, args = unpack(pack(space["map_fun"], {"x": 2}))
    assert map_fun(args, None) == 6
    assert map_fun is not space["map_fun"]


def test_what_happens_to_a_captured_name_on_the_node_does_not_reach_the_notebook() -> None:
    space = notebook("def map_fun(args, ctx):\n    items.append(1)\n    return items\n", items=[])
    map_fun, args = unpack(pack(space["map_fun"], None))
    assert map_fun(args, None) == [1]
    assert space["items"] == []


def test_names_that_are_not_used_are_not_sent() -> None:
    space = notebook("def map_fun(args, ctx):\n    return 1\n", lock=threading.Lock())
    assert unpack(pack(space["map_fun"], None))[0](None, None) == 1


def test_the_source_text_of_notebook_code_arrives_too() -> None:
    space = notebook("def map_fun(args, ctx):\n    return 1\n")
    data = pack(space["map_fun"], None)
    linecache.cache.pop("<ipython-input-3-0123456789ab>")
    map_fun, _ = unpack(data)
    assert inspect.getsource(map_fun) == "def map_fun(args, ctx):\n    return 1\n"


def test_standard_output_arrives_as_the_nodes_own() -> None:
    space = notebook("def map_fun(args, ctx):\n    return out\n", out=sys.stdout)
    assert unpack(pack(space["map_fun"], None))[0](None, None) is sys.stdout


def test_files_in_memory_are_sent() -> None:
    _, args = unpack(pack(len, io.BytesIO(b"abc")))
    assert args.getvalue() == b"abc"


def test_a_lock_is_named_by_its_path() -> None:
    text = refusal_of({"queue": [1, threading.Lock()]})
    assert text == (
        "'thing['queue'][1]' (lock) cannot be sent to the nodes: locks and threads belong to the process that made "
        "them. Make it inside the cell"
    )


def test_a_lock_in_an_attribute_is_named_by_its_path() -> None:
    class Holder:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    assert refusal_of(Holder()).startswith("'thing.lock' (lock) cannot be sent")


def test_an_open_file_is_refused_with_what_to_do(tmp_path: Any) -> None:
    with (tmp_path / "x").open("w+") as file:
        text = refusal_of(file)
    assert "an open file belongs to the process that opened it" in text
    assert "Capture its path" in text


def test_a_generator_is_refused_with_what_to_do() -> None:
    text = refusal_of(number for number in range(3))
    assert "a running generator cannot be copied" in text
    assert "capture list(thing)" in text


def test_a_socket_is_refused() -> None:
    with socket.socket() as connection:
        assert "an open connection belongs to the process that made it" in refusal_of(connection)


@pytest.mark.parametrize("path", ["pyspark.sql.session.SparkSession", "pyspark.core.context.SparkContext"])
def test_a_spark_session_is_refused_although_it_may_pickle(path: str) -> None:
    text = refusal_of(_hollow(path))
    assert "exists only in the notebook" in text
    assert "data=" in text


@pytest.mark.parametrize(
    "path",
    [
        "pyspark.sql.classic.dataframe.DataFrame",
        "pyspark.sql.connect.dataframe.DataFrame",
        "pyspark.core.rdd.RDD",
    ],
)
def test_rows_in_spark_are_refused_with_what_to_do(path: str) -> None:
    text = refusal_of(_hollow(path))
    assert "its rows live in Spark" in text
    assert "data=thing" in text
    assert "collect()" in text


def test_a_handle_on_the_jvm_is_refused() -> None:
    assert "Spark's JVM" in refusal_of(_hollow("py4j.java_gateway.JavaObject"))


def test_spark_values_that_are_plain_data_are_sent() -> None:
    from pyspark.sql import Row
    from pyspark.sql.types import IntegerType, StructField, StructType

    value = [Row(a=1), StructType([StructField("a", IntegerType())])]
    assert unpack(pack(len, value))[1] == value


def test_a_live_cluster_is_refused() -> None:
    kind = type("Cluster", (), {"__module__": "tfos_lab.engine.cluster"})
    text = refusal_of(kind())
    assert "only the notebook can control a cluster" in text
    assert "thing.results" in text


def test_the_notebooks_shell_is_refused() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    assert "the nodes have none" in refusal_of(InteractiveShell.__new__(InteractiveShell))


def test_a_name_that_a_helper_uses_is_named_with_the_helper() -> None:
    source = "def helper():\n    return lock\ndef map_fun(args, ctx):\n    return helper()\n"
    with pytest.raises(PayloadError) as error:
        pack(notebook(source, lock=threading.Lock())["map_fun"], None)
    assert error.value.name == "lock"
    assert "(used by helper())" in str(error.value)


def test_a_culprit_in_the_arguments_is_named() -> None:
    with pytest.raises(PayloadError) as error:
        pack(len, {"model": threading.RLock()})
    assert error.value.name == "args['model']"
    assert error.value.type_name == "RLock"


def test_culprits_in_closures_defaults_partials_and_methods_are_named() -> None:
    lock = threading.Lock()

    def closure(args: Any, ctx: Any) -> Any:
        return lock

    def default(args: Any, ctx: Any = lock) -> Any:
        return ctx

    def keyword(args: Any, ctx: Any, *, guard: Any = lock) -> Any:
        return guard

    class Trainer:
        def __init__(self) -> None:
            self.lock = lock

        def fit(self, args: Any, ctx: Any) -> None: ...

    expected: list[tuple[Any, str]] = [
        (closure, "lock"),
        (default, "ctx"),
        (keyword, "guard"),
        (functools.partial(len, obj=lock), "obj"),
        (Trainer().fit, "self.lock"),
    ]
    for map_fun, name in expected:
        with pytest.raises(PayloadError) as error:
            pack(map_fun, None)
        assert error.value.name == name


def test_an_object_whose_reduce_method_raises_is_quoted() -> None:
    class Proud:
        def __reduce__(self) -> Any:
            raise RuntimeError("not today.\nsecond line")

    text = refusal_of(Proud())
    assert text == (
        "'thing' (Proud) cannot be sent to the nodes: not today. Make it inside the cell, or capture plain data instead"
    )


def test_an_object_that_hides_the_culprit_is_named_instead() -> None:
    class Opaque:
        def __reduce__(self) -> Any:
            return list, ([threading.Lock()],)

    assert "it holds a lock, and locks and threads belong" in refusal_of(Opaque())


def test_a_payload_over_the_limit_is_refused_with_the_biggest_names() -> None:
    space = notebook("def map_fun(args, ctx):\n    return x, y, z\n", x=np.zeros(1_000_000), y=np.zeros(250_000), z=1)
    with pytest.raises(PayloadError) as error:
        pack(space["map_fun"], None, limit_bytes=4_000_000)
    assert error.value.name == "x"
    assert "more than 4 MB (x 8 MB, y 2 MB)" in str(error.value)
    assert "data=" in str(error.value)


def test_captured_sizes_lists_the_largest_first() -> None:
    space = notebook("def map_fun(args, ctx):\n    return x, y\n", x=b"x" * 10, y=b"y" * 1000)
    assert list(captured_sizes(space["map_fun"], [0] * 200)) == ["y", "args", "x"]


def test_a_payload_that_is_no_function_is_refused() -> None:
    with pytest.raises(PayloadError, match="'map_fun' \\(int\\) cannot be sent to the nodes: it is not a function"):
        pack(3, None)


def test_a_module_that_is_missing_on_the_node_is_named() -> None:
    module = types.ModuleType("only_beside_the_notebook")
    exec("def train(): ...", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        data = pack(module.train, None)
    finally:
        del sys.modules[module.__name__]
    with pytest.raises(PayloadError) as error:
        unpack(data)
    assert error.value.name == "only_beside_the_notebook"
    assert "Install it on the nodes" in str(error.value)


def test_bytes_from_another_python_are_refused_before_they_are_read() -> None:
    data = bytearray(pack(len, None))
    data[6] = 2
    with pytest.raises(PayloadError, match=r"packed by Python 3\.2, and this node runs Python 3\."):
        unpack(bytes(data))


def test_bytes_that_are_no_payload_are_refused() -> None:
    with pytest.raises(PayloadError, match="not packed by this version of tfos_lab"):
        unpack(b"anything")


def test_bytes_that_cannot_be_unpickled_are_refused() -> None:
    with pytest.raises(PayloadError, match="cannot rebuild it"):
        unpack(pack(len, list(range(100)))[:-40])


def _hollow(path: str) -> Any:
    """Return an instance of a class that was never initialized: its class decides, not its content."""
    module, _, name = path.rpartition(".")
    kind = getattr(__import__(module, fromlist=[name]), name)
    return object.__new__(kind)
