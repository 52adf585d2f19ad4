"""The user's function on its way to the nodes: it arrives with what it uses, and what cannot be sent is named.

Its own modules travel with it, as they are on disk, to processes that do not have them.
"""

import contextlib
import functools
import importlib.util
import inspect
import io
import linecache
import pickle
import socket
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.random_data import fuzzed
from tfos_lab.core.payload import captured_sizes, pack, unpack
from tfos_lab.errors import PayloadError

CELL = "<ipython-input-3-0123456789ab>"


def notebook(source, **names):
    """Run source as a notebook cell would run it, and return the notebook's names."""
    space = {"__name__": "__main__", **names}
    linecache.cache[CELL] = (len(source), None, source.splitlines(keepends=True), CELL)
    exec(compile(source, CELL, "exec"), space)
    return space


def capturing(value):
    """Return a function that uses the name ``thing``."""
    return notebook("def map_fun(args, ctx):\n    return thing\n", thing=value)["map_fun"]


def refusal_of(value):
    with pytest.raises(PayloadError) as error:
        pack(capturing(value), None)
    assert error.value.name.startswith("thing")
    return str(error.value)


# ---- what arrives ---------------------------------------------------------------------------------------------------


def test_a_notebook_function_arrives_with_the_names_it_uses_and_with_no_others():
    source = "def helper(x):\n    return x * rate\ndef map_fun(args, ctx):\n    return helper(args['x'])\n"
    space = notebook(source, rate=3, unused=threading.Lock())
    map_fun, args = unpack(pack(space["map_fun"], {"x": 2}))
    assert map_fun(args, None) == 6
    assert map_fun is not space["map_fun"]


def test_what_happens_to_a_captured_name_on_the_node_does_not_reach_the_notebook():
    items = []
    source = "def map_fun(args, ctx):\n    items.append(1)\n    return items\n"
    assert unpack(pack(notebook(source, items=items)["map_fun"], None))[0](None, None) == [1]
    assert items == []


def test_the_source_text_of_notebook_code_arrives_too():
    data = pack(capturing(1), None)
    linecache.cache.pop(CELL)
    map_fun, _ = unpack(data)
    linecache.checkcache()
    assert inspect.getsource(map_fun) == "def map_fun(args, ctx):\n    return thing\n"


def test_streams_rows_and_schemas_are_sent():
    from pyspark.sql import Row
    from pyspark.sql.types import IntegerType, StructField, StructType

    assert unpack(pack(capturing(sys.stdout), None))[0](None, None) is sys.stdout
    _, (memory, *plain) = unpack(
        pack(len, [io.BytesIO(b"abc"), Row(a=1), StructType([StructField("a", IntegerType())])])
    )
    assert memory.getvalue() == b"abc"
    assert plain == [Row(a=1), StructType([StructField("a", IntegerType())])]


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_a_lock_is_named_by_its_path_with_what_to_do():
    class Holder:
        def __init__(self):
            self.lock = threading.Lock()

    assert refusal_of({"queue": [1, threading.Lock()]}) == (
        "'thing['queue'][1]' (lock) cannot be sent to the nodes: locks and threads belong to the process that made "
        "them. Make it inside the cell"
    )
    assert refusal_of(Holder()).startswith("'thing.lock' (lock) cannot be sent")


def hollow(path):
    """Return an instance of a class that was never initialized: its class decides, not its content."""
    module, _, name = path.rpartition(".")
    return object.__new__(getattr(__import__(module, fromlist=[name]), name))


@pytest.mark.parametrize(
    ("make", "sentences"),
    [
        (lambda: open("/dev/null"), ["an open file belongs to the process that opened it", "Capture its path"]),  # noqa: PTH123, SIM115
        (lambda: (n for n in range(3)), ["a running generator cannot be copied", "capture list(thing)"]),
        (socket.socket, ["an open connection belongs to the process that made it"]),
        (lambda: hollow("pyspark.sql.session.SparkSession"), ["exists only in the notebook", "data="]),
        (lambda: hollow("pyspark.core.context.SparkContext"), ["exists only in the notebook", "data="]),
        (lambda: hollow("pyspark.sql.classic.dataframe.DataFrame"), ["rows live in Spark", "data=thing", "collect()"]),
        (lambda: hollow("pyspark.sql.connect.dataframe.DataFrame"), ["rows live in Spark", "data=thing", "collect()"]),
        (lambda: hollow("pyspark.core.rdd.RDD"), ["rows live in Spark", "data=thing", "collect()"]),
        (lambda: hollow("py4j.java_gateway.JavaObject"), ["Spark's JVM"]),
        (lambda: hollow("tfos_lab.driver.cluster.Cluster"), ["only the notebook can control", "thing.results"]),
        (lambda: hollow("IPython.core.interactiveshell.InteractiveShell"), ["the nodes have none"]),
    ],
)
def test_what_belongs_to_the_notebook_is_refused_with_what_to_do(make, sentences):
    with contextlib.ExitStack() as stack:
        thing = make()
        if isinstance(thing, io.IOBase | socket.socket):
            stack.enter_context(thing)
        text = refusal_of(thing)
    assert [sentence for sentence in sentences if sentence not in text] == [], text


def test_a_culprit_is_named_where_it_hides():
    lock = threading.Lock()

    def closure(args, ctx):
        return lock

    def default(args, ctx=lock):
        return ctx

    def keyword(args, ctx, *, guard=lock):
        return guard

    class Trainer:
        def __init__(self):
            self.lock = lock

        def fit(self, args, ctx): ...

    expected = [
        (closure, None, "lock"),
        (default, None, "ctx"),
        (keyword, None, "guard"),
        (functools.partial(len, obj=lock), None, "obj"),
        (Trainer().fit, None, "self.lock"),
        (len, {"model": lock}, "args['model']"),
    ]
    for map_fun, args, name in expected:
        with pytest.raises(PayloadError) as error:
            pack(map_fun, args)
        assert error.value.name == name
    source = "def helper():\n    return lock\ndef map_fun(args, ctx):\n    return helper()\n"
    with pytest.raises(PayloadError, match=r"'lock' .*\(used by helper\(\)\)"):
        pack(notebook(source, lock=lock)["map_fun"], None)


def test_an_object_that_cannot_be_pickled_or_hides_what_cannot_be_is_told_with_the_reason():
    class Proud:
        def __reduce__(self):
            raise RuntimeError("not today.\nsecond line")

    class Opaque:
        def __reduce__(self):
            return list, ([threading.Lock()],)

    assert refusal_of(Proud()) == (
        "'thing' (Proud) cannot be sent to the nodes: not today. Make it inside the cell, or capture plain data instead"
    )
    assert "it holds a lock, and locks and threads belong" in refusal_of(Opaque())


def test_a_payload_over_the_limit_is_refused_with_the_biggest_names():
    space = notebook("def map_fun(args, ctx):\n    return x, y, z\n", x=np.zeros(1_000_000), y=np.zeros(250_000), z=1)
    with pytest.raises(PayloadError) as error:
        pack(space["map_fun"], None, limit_bytes=4_000_000)
    assert error.value.name == "x"
    assert "more than 4 MB (x 8 MB, y 2 MB)" in str(error.value)
    assert "data=" in str(error.value)
    assert list(captured_sizes(space["map_fun"], [0] * 20_000)) == ["x", "y", "args", "z"]


@pytest.mark.parametrize(
    ("function", "beyond"),
    [
        (lambda args, ctx, lr: lr, "lr"),
        (lambda *, lr, args: lr, "lr and args"),
        (lambda args, ctx, lr, *, mu: lr, "lr and mu"),
    ],
)
def test_a_function_that_needs_more_than_args_and_ctx_is_refused_before_anything_starts(function, beyond):
    with pytest.raises(PayloadError, match=rf"it is called with \(args, ctx\), and needs {beyond} as well"):
        pack(function, None)


@pytest.mark.parametrize(
    "function", [lambda args, ctx, lr=0.1, *more, mu=1, **named: lr, lambda *both: both, max, "a".upper]
)
def test_a_function_may_take_more_than_it_needs(function):
    assert unpack(pack(function, None))[1] is None


# ---- on the node ----------------------------------------------------------------------------------------------------


def test_a_module_that_is_missing_on_the_node_is_named():
    module = types.ModuleType("only_beside_the_notebook")
    exec("def train(): ...", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        data = pack(module.train, None)
    finally:
        del sys.modules[module.__name__]
    with pytest.raises(PayloadError, match="Install it on the nodes") as error:
        unpack(data)
    assert error.value.name == "only_beside_the_notebook"


def test_bytes_from_another_python_are_refused_before_they_are_read():
    data = bytearray(pack(len, None))
    data[6] = 2
    with pytest.raises(PayloadError, match=r"packed by Python 3\.2, and this node runs Python 3\."):
        unpack(bytes(data))


@fuzzed(40)
@given(st.binary(max_size=40) | st.integers(1, 200).map(lambda cut: pack(len, list(range(300)))[:-cut]))
def test_bytes_that_are_no_payload_are_refused(data):
    with pytest.raises(PayloadError, match=r"not packed by this version of tfos_lab|cannot rebuild it"):
        unpack(data)


# ---- the user's own modules -----------------------------------------------------------------------------------------

# What a node does, in a process that has none of the modules on its path; it reads one payload after the other.
NODE = """
import pickle, sys, traceback
from tfos_lab.core.payload import unpack
for data in pickle.load(sys.stdin.buffer):
    try:
        map_fun, args = unpack(data)
        print(map_fun(args, None))
    except Exception:
        traceback.print_exc(file=sys.stdout)
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file of the user's folder, which is on the path of this process only."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def packed(source, args=None):
    return pack(notebook(source)["map_fun"], args, with_modules=True)


def on_node(*payloads):
    command = [sys.executable, "-c", NODE]
    return subprocess.run(command, input=pickle.dumps(payloads), capture_output=True, check=True).stdout.decode()


def test_a_module_that_a_cell_imports_travels_with_what_it_imports(write):
    write("helpers_a.py", "import helpers_b\ndef twice(x): return helpers_b.times(x, 2)\n")
    write("helpers_b.py", "def times(x, n): return x * n\n")
    write("helpers_c.py", "class Model:\n    rate = 3\n")
    outside = packed("import helpers_a\ndef map_fun(args, ctx):\n    return helpers_a.twice(21)\n")
    inside = packed("def map_fun(args, ctx):\n    from helpers_a import twice\n    return twice(args)\n", 4)
    by_name = packed("from helpers_a import twice\ndef map_fun(args, ctx):\n    return twice(5)\n")
    in_class = "def map_fun(args, ctx):\n    class A:\n        from helpers_a import twice\n    return A.twice(6)\n"
    # Of so many constants that an instruction needs more than a byte for one.
    table = "".join(f"    x = {number}.5\n" for number in range(300))
    late = f"def map_fun(args, ctx):\n{table}    from helpers_a import twice\n    return twice(7)\n"
    model = "import helpers_c\nmodel = helpers_c.Model()\ndef map_fun(args, ctx):\n    return model.rate\n"
    assert on_node(outside, inside, by_name, packed(in_class), packed(model)).split() == ["42", "8", "10", "12", "3"]
    assert on_node(packed(late)) == "14\n"


def test_packages_travel_whole_those_without_an_init_file_by_their_modules(write, tmp_path, monkeypatch):
    write("helpers_p/__init__.py", "")
    write("helpers_p/inner/__init__.py", "from ..base import ONE\n")
    write("helpers_p/base.py", "ONE = 1\n")
    write("helpers_p/found_later.py", "TWO = 2\n")
    write("helpers_p/broken.py", "def (:\n")
    write("helpers_n/part/one.py", "from .two import TWO\n")
    write("helpers_n/part/two.py", "TWO = 2\n")
    write("src/helpers_i/__init__.py", "from .one import ONE\n")
    write("src/helpers_i/one.py", "ONE = 1\n")

    class Finder:  # as installers put it into sys.meta_path for a package that is installed as editable
        @staticmethod
        def find_spec(name, path=None, target=None):
            file = tmp_path / "src" / name / "__init__.py"
            return importlib.util.spec_from_file_location(name, file) if name == "helpers_i" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    whole = (
        "def map_fun(args, ctx):\n    import importlib\n    from helpers_p.inner import ONE\n"
        "    return ONE + importlib.import_module('helpers_p.found_later').TWO\n"
    )
    namespace = "def map_fun(args, ctx):\n    from helpers_n.part import one\n    return one.TWO\n"
    editable = "def map_fun(args, ctx):\n    import helpers_i\n    return helpers_i.ONE\n"
    told = on_node(packed(whole), packed(namespace), packed(editable))
    assert told.split() == ["3", "2", "1"], told


def test_a_change_is_seen_by_the_next_payload_even_in_the_same_process(write):
    write("helpers_d.py", "import helpers_e\n")
    write("helpers_e.py", "RATE = 1\n")
    source = "import helpers_d\ndef map_fun(args, ctx):\n    import helpers_d\n    return helpers_d.helpers_e.RATE\n"
    first = packed(source)
    write("helpers_e.py", "RATE = 22\n")
    second = packed(source)
    write("helpers_s/part.py", "RATE = 3\n")
    in_namespace = "def map_fun(args, ctx):\n    from helpers_s import part\n    return part.RATE\n"
    third = packed(in_namespace)
    write("helpers_s/part.py", "RATE = 44\n")
    assert on_node(first, first, second, third, packed(in_namespace)).split() == ["1", "1", "22", "3", "44"]


def test_a_traceback_shows_the_lines_that_ran(write, tmp_path):
    write("helpers_f.py", "def fail():\n    raise ValueError('too small')  # as it was\n")
    data = packed("def map_fun(args, ctx):\n    import helpers_f\n    helpers_f.fail()\n")
    write("helpers_f.py", "# another first line\ndef fail():\n    pass\n")
    told = f"File \"{tmp_path}/helpers_f.py\", line 2, in fail\n    raise ValueError('too small')  # as it was"
    assert told in on_node(data)


def test_a_module_that_is_no_python_is_refused_before_anything_starts(write):
    write("helpers_g.py", "\ndef fail(:\n")
    with pytest.raises(PayloadError, match=r"line 2 of .*helpers_g.py is not valid Python now.*run the cell again"):
        packed("def map_fun(args, ctx):\n    import helpers_g\n")


def test_what_is_installed_stays_where_it_is_and_so_do_data_files(write):
    write("helpers_h/__init__.py", "")
    write("helpers_h/words.txt", "the words of a file")
    own = packed("def map_fun(args, ctx):\n    import helpers_h\n")
    assert b"helpers_h/__init__.py" in own
    assert b"the words of a file" not in own
    source = "def map_fun(args, ctx):\n    import json, numpy, tfos_lab, pyspark.sql, not_there_at_all\n"
    assert packed(source) == pack(notebook(source)["map_fun"], None)


def test_several_threads_pack_modules_at_once(write):
    """Python's own parser spoils the trees of other threads now and then."""
    for number in range(40):
        body = "\n".join(f"def f{n}(x):\n    return [(y + {n}) * x for y in range(x) if y > {n}]" for n in range(60))
        write(f"helpers_t{number}.py", body)
    sources = [f"def map_fun(args, ctx):\n    import helpers_t{number}\n" for number in range(40)]
    functions = [notebook(source)["map_fun"] for source in sources]
    with ThreadPoolExecutor(4) as pool:
        payloads = list(pool.map(lambda function: pack(function, None, with_modules=True), functions))
    assert [f"helpers_t{number}.py".encode() in payload for number, payload in enumerate(payloads)] == [True] * 40
