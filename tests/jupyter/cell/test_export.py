"""A cell as a script for spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.cell.export import FinishedCell, export, needed_cells, script
from tfos_lab.jupyter.options.table import CellOptions, parse_options


def finished(line: str, body: str, captured: tuple[str, ...] = (), **names: Any) -> FinishedCell:
    return FinishedCell(line, body, parse_options(line, names), captured)


def test_the_script_is_the_cell_and_the_cells_that_it_depends_on() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})()
    line = "cluster_size=2 data=train_df epochs=3 name=mnist grace=5 eval_node args={'lr': RATE}"
    cell = finished(line, "model = build()\nmodel.fit(args['lr'])\n", train_df=frame, RATE=0.1)
    earlier = [
        "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()",
        "%load_ext tfos_lab\nimport keras",
        "import matplotlib.pyplot as plt\nplt.plot([1])",
        "%%tfos\nbuild = 1",
        "RATE = 0.1",
        "def build():\n    return keras.Sequential()",
        "train_df = spark.range(10)",
        "train_df.show()",
        "1 +",
    ]
    assert script(cell, earlier) == (
        "# Written by `%tfos export` from a notebook.\n"
        "# Run it with:  spark-submit THIS_FILE.py\n\n"
        "from pyspark.sql import SparkSession\n\nimport tfos_lab\n\n"
        "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n\n"
        "# %load_ext tfos_lab\nimport keras\n\n"
        "RATE = 0.1\n\n"
        "def build():\n    return keras.Sequential()\n\n"
        "train_df = spark.range(10)\n\n"
        "train_df.show()\n\n"
        "def map_fun(args, ctx=None):\n    model = build()\n    return model.fit(args['lr'])\n\n"
        'if __name__ == "__main__":\n'
        "    mnist = tfos_lab.run(map_fun, {'lr': RATE}, spark=spark, cluster_size=2, name='mnist', grace_s=5.0, "
        "eval_node=True)\n"
        "    with mnist:\n"
        "        mnist.train(train_df, epochs=3)\n"
        "        print(mnist.wait())\n"
    )


def test_the_script_runs(tmp_path: Path) -> None:
    body = 'text = """a\n  b"""\nx = x + 1\nif args:\n    y = (1,\n2)\n(text,\n x)\n'
    cell = finished("local=inline args=1", body, captured=("x",))
    text = script(cell, ["x = 1"]).replace("spark = SparkSession.builder.getOrCreate()", "spark = None")
    space: dict[str, Any] = {"__name__": "a script"}
    exec(compile(text, "script", "exec"), space)
    assert space["map_fun"](1) == ("a\n  b", 2)
    space["__name__"] = "__main__"


def test_the_script_prints_the_address_of_tensorboard() -> None:
    text = script(finished("tensorboard name=mnist", "1"), [])
    assert '    with mnist:\n        print("TensorBoard:", mnist.tensorboard_url)\n        print(mnist.wait())' in text


def test_the_script_has_the_options_for_output() -> None:
    text = script(finished("output=all output_limit_bytes=1000", "ctx.save_model(1)"), [])
    assert "tfos_lab.run(map_fun, None, spark=spark, output='all', output_limit_bytes=1000)" in text


def test_a_session_is_made_if_the_notebook_made_none() -> None:
    text = script(finished("", "1"), [])
    assert "spark = SparkSession.builder.getOrCreate()\n\ndef map_fun" in text


def test_names_that_no_cell_defined_are_listed() -> None:
    assert "# The notebook's cells did not define: where" in script(finished("", "where + len([1])"), [])


def test_names_local_to_functions_methods_and_comprehensions_are_not_missing() -> None:
    layer = """class Layer(keras.Layer):
    rate: float = RATE
    twice = rate * 2

    def call(self, x, *, training=False):
        import numpy as np

        a, shape = np.zeros(3), x.shape
        with open(PATH) as file:
            return [a + row for row in file if (lambda v: v + self.twice)(row)], shape
"""
    body = "def loss(y, p=WEIGHT):\n    z = y - p\n    return z\nmodel = Layer()\n[loss(k) for k in range(3)]"
    text = script(finished("args={n: 1 for n in 'ab'}", f"{layer}\n{body}"), ["import keras\nRATE = 1", "WEIGHT = 2"])
    assert "# The notebook's cells did not define: PATH\n" in text
    assert "import keras\nRATE = 1\n\nWEIGHT = 2\n" in text
    text = script(finished("", "model = Layer()\nmodel"), ["import keras\nRATE = 1", "PATH = 'x'", "WEIGHT = 2", layer])
    assert "did not define" not in text
    assert "import keras\nRATE = 1\n\nPATH = 'x'\n\nclass Layer" in text


def test_a_last_value_with_a_semicolon_is_not_returned() -> None:
    assert "return" not in script(finished("", "1;"), [])


def test_cells_that_change_a_needed_name_are_included_and_others_are_not() -> None:
    cells = [
        "rows = []",
        "rows.append(1)",
        "other = 1",
        "other.append(rows)",
        "rows[0] = 2",
        "%%time\nrows += [1]",
        "%%bash\nrows",
    ]
    chosen, missing = needed_cells({"rows", "gone"}, cells)
    assert chosen == ["rows = []", "rows.append(1)", "rows[0] = 2", "rows += [1]"]
    assert missing == {"gone"}


def test_magics_within_a_block_leave_it_valid() -> None:
    assert needed_cells({"a"}, ["if True:\n    %matplotlib inline\na = 1"])[0] == [
        "if True:\n    pass  # %matplotlib inline\na = 1"
    ]


def test_definitions_that_were_run_again_are_included_once() -> None:
    chosen, _ = needed_cells({"f", "a"}, ["def f(): ...", "a = 1", "a = a + 1", "def f(): ...", "a = 1"])
    assert chosen == ["def f(): ...", "a = 1", "a = a + 1", "a = 1"]


def test_a_function_may_use_what_a_later_cell_defines() -> None:
    chosen, missing = needed_cells({"f"}, ["def f():\n    return g()", "def g(): ...", "def h(): ..."])
    assert chosen == ["def f():\n    return g()", "def g(): ..."]
    assert not missing


def test_another_file_of_the_user_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("precious = True\n")
    with pytest.raises(
        ConfigError, match="exists and was not written by %tfos export: give another name, or remove it"
    ):
        export(str(path), finished("", "1"), [])
    assert path.read_text() == "precious = True\n"


def test_an_older_export_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out" / "mine.py"
    export(str(path), FinishedCell("", "1", CellOptions(), ()), [])
    export(str(path), FinishedCell("", "2", CellOptions(), ()), [])
    assert "return 2" in path.read_text()
