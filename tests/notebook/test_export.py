"""``%tfos export``: cells of the notebook, and those that they depend on, as one script for spark-submit."""

import contextlib

import pytest

import tfos_lab


@pytest.fixture
def cells(run):
    """Run cells; what comes of them does not matter, but for those with ``%%tfos``, whose lines have to be right."""

    def cells(*texts):
        for text in texts:
            with contextlib.suppress(Exception):
                run(text)

    return cells


@pytest.fixture
def export(run, tmp_path, said):
    """Export cells and return the script."""

    def export(*words):
        path = tmp_path / "out" / "script.py"
        assert said(f"%tfos export {path} {' '.join(words)}") == [f"wrote {path}; run it with: spark-submit {path}"]
        return path.read_text()

    return export


def test_cells_of_before_a_reset_have_numbers_that_are_others_now(cells, export, shell):
    cells("%load_ext tfos_lab", "%%tfos local=inline name=before\n1", "%%tfos local=inline name=before_too\n2")
    shell.reset()
    cells("%load_ext tfos_lab", "RATE = 0.1", "def build():\n    return RATE", "%%tfos local=inline name=now\nbuild()")
    script = export()
    assert "RATE = 0.1\n\ndef build():\n    return RATE\n\ndef map_fun(" in script
    assert "before" not in script


def test_the_script_is_the_cell_and_the_cells_that_it_depends_on(cells, export):
    cells(
        "%load_ext tfos_lab\nimport math",
        "import matplotlib\nmatplotlib.use('agg')",
        "RATE = 0.1",
        "def build():\n    return math.floor(2.5)",
        "import numpy as np\ntrain_df = {'a': np.arange(4)}",
        "train_df['b'] = np.arange(4)",
        "1 +",
        "%%tfos cluster_size=2 data=train_df epochs=3 name=mnist grace=5 local=processes "
        "args={'lr': RATE} tensorboard\n"
        "model = build()\nmodel.fit(args['lr'])\n",
    )
    assert export() == (
        "# Written by `%tfos export` from a notebook.\n"
        "# Run it with:  spark-submit THIS_FILE.py\n\n"
        "from pyspark.sql import SparkSession\n\nimport tfos_lab\n\n"
        "spark = SparkSession.builder.getOrCreate()\n\n"
        "# %load_ext tfos_lab\nimport math\n\n"
        "RATE = 0.1\n\n"
        "def build():\n    return math.floor(2.5)\n\n"
        "import numpy as np\ntrain_df = {'a': np.arange(4)}\n\n"
        "train_df['b'] = np.arange(4)\n\n"
        "def map_fun(args, ctx=None):\n    model = build()\n    return model.fit(args['lr'])\n\n"
        'if __name__ == "__main__":\n'
        "    mnist = tfos_lab.run(map_fun, {'lr': RATE}, spark=spark, cluster_size=2, name='mnist', grace=5, "
        "local='processes', tensorboard=True)\n"
        "    with mnist:\n"
        '        print("TensorBoard:", mnist.tensorboard_url)\n'
        "        mnist.train(train_df, epochs=3)\n"
        "        print(mnist.wait())\n"
    )


def test_the_script_runs(cells, export, capsys):
    body = 'text = """a\n  b"""\nx = x + 1\nif args:\n    y = (1,\n2)\n(text,\n x)\n'
    cells("x = 1", f"%%tfos local=inline args=1\n{body}")
    text = export().replace("spark = SparkSession.builder.getOrCreate()", "spark = None")
    exec(compile(text, "script", "exec"), {"__name__": "__main__"})
    assert "('a\\n  b', 2)" in capsys.readouterr().out


def test_what_the_notebook_s_defaults_said_is_in_the_script(cells, export):
    cells("%tfos config restarts=2", "%%tfos cluster_size=2 local=processes\n1;")
    text = export()
    assert "cluster_size=2" in text
    assert "restarts=2" in text
    assert "return" not in text, "a semicolon hides the value"
    cells("%tfos config reset")


def test_names_that_no_cell_defined_are_listed_and_local_ones_are_not(cells, export):
    layer = (
        "class Layer(Base):\n    rate: float = RATE\n    twice = rate * 2\n\n"
        "    def call(self, x, *, training=False):\n        import numpy as np\n\n"
        "        a, shape = np.zeros(3), x.shape\n        with open(PATH) as file:\n"
        "            return [a + row for row in file if (lambda v: v + self.twice)(row)], shape"
    )
    body = "def loss(y, p=WEIGHT):\n    z = y - p\n    return z\nmodel = Layer()\n[loss(k) for k in range(3)]"
    cells("Base, RATE = object, 1", "WEIGHT = 2", f"%%tfos local=inline args={{n: 1 for n in 'ab'}}\n{layer}\n{body}")
    text = export()
    assert "# The notebook's cells did not define: PATH\n" in text
    assert "Base, RATE = object, 1\n\nWEIGHT = 2\n" in text


def test_cells_that_change_a_needed_name_come_along_and_definitions_only_once(cells, export):
    cells(
        "rows = []",
        "rows.append(1)",
        "other = 1",
        "other.append(rows)",
        "rows[0] = 2",
        "%%time\nrows += [1]",
        "%%capture\nprint(other)",
        "if True:\n    %matplotlib agg\nlast = 1",
        "def f():\n    return g()",
        "def g():\n    return rows, last",
        "def h(): ...",
        "def f():\n    return g()",
        "%%tfos local=inline\nf()",
    )
    text = export()
    kept = ["rows = []", "rows.append(1)", "rows[0] = 2", "rows += [1]", "    pass  # %matplotlib agg", "def g()"]
    assert [text.count(piece) for piece in kept] == [1] * len(kept)
    assert text.count("def f()") == 1
    assert "other" not in text
    assert "def h" not in text


def test_another_file_of_the_user_is_not_overwritten_and_an_older_export_is(cells, export, problem, tmp_path):
    cells("%%tfos local=inline\n'first'")
    assert "'first'" in export()
    cells("%%tfos local=inline\n'second'")
    assert "'second'" in export()
    path = tmp_path / "mine.py"
    path.write_text("precious = True\n")
    assert problem(f"%tfos export {path}") == (
        f"{path} exists and was not written by %tfos export: give another name, or remove it"
    )
    assert path.read_text() == "precious = True\n"


# ---- cells by number or name ----------------------------------------------------------------------------------------


@pytest.fixture
def notebook(cells):
    """Cells of a notebook, numbered from 1."""
    cells(
        "RATE = 1",
        "def build():\n    return RATE",
        "unused = 1",
        "%%tfos name=train local=inline args=1\nbuild()",  # 4
        "rates = [RATE]",
        "%%tfos name=train local=inline args=2\nbuild() + 1",  # 6
        "RATE = 2",
        "def build():\n    return RATE",
        "%%tfos name=score local=inline args=rates\nargs",  # 9
        "print(train.results, rates)",
        "%%tfos on=train\n1",
        "%%tfos cluster_sice=2\n1",
        "1 +",  # 13
    )


def in_order(text, *pieces):
    places = [text.index(piece) for piece in pieces]
    return places == sorted(places)


def test_several_cells_are_one_script_in_the_notebooks_order(notebook, export):
    text = export("score", "4")
    assert in_order(text, "RATE = 1", "def map_fun_4(", "map_fun_4, 1", "rates = [RATE]", "def map_fun_9(", "score = ")
    assert text.count("spark = ") == 1
    compile(text, "script", "exec")


def test_all_that_cannot_be_exported_is_named(notebook, run, tmp_path):
    with pytest.raises(tfos_lab.errors.ConfigError) as error:
        run(f"%tfos export {tmp_path}/x.py trane 0 99 11 12 13 train")
    assert error.value.problems == [
        "trane: this is no cell's number, and no %%tfos cell has that name; did you mean train?",
        "0: this kernel has run no cell In[0]",
        "99: this kernel has run no cell In[99]",
        "11: In[11] runs on nodes that wait, and a script has none; export others",
        "12: In[12] did not get as far as its nodes; correct it, and run it again",
        "13: In[13] is no Python",
    ]


def test_rows_to_validate_with_are_in_the_script_as_they_were_written(cells, export):
    cells(
        "import numpy as np\nrows = {'a': np.arange(4)}\nothers = rows",
        "%%tfos data=rows validation={'validation': 0.5, 'test': others} epochs=2\nlen(ctx.validation(1))",
    )
    assert "cluster.train(rows, validation={'validation': 0.5, 'test': others}, epochs=2)" in export()


def test_cells_that_use_the_session_stand_below_it(cells, export):
    cells("frame = spark.range(3)", "%%tfos local=inline\nframe")
    text = export()
    assert text.index("spark = SparkSession") < text.index("frame = spark.range(3)")
