"""The tutorials run unchanged on a laptop and on a cluster, one after the other, and what each of them claims is true.

There is one kernel for each place, and a tutorial finds none of the names of those before it. They run here; with
``TFOS_TEST_TUTORIALS=cluster``, which is ``make tutorials``, they run on a standalone cluster of Spark, too.
"""

import os
import re

import pytest

from tests.notebooks.conftest import ROOT
from tests.support.lazy import Lazy
from tests.support.notebook_kernel import ALREADY_LOADED

nbformat = Lazy("nbformat")

NOTEBOOKS = ROOT / "notebooks"
NUMBERED = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


BOTH = os.environ.get("TFOS_TEST_TUTORIALS") == "cluster"

per_tutorial = pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.stem)


def runs_in(*places):
    """Return the marks of a test that runs in each of these places, by which tests are grouped."""
    marks = [pytest.mark.whole_notebook, pytest.mark.tensorflow, pytest.mark.timeout(600)]
    return [*marks, pytest.mark.parametrize("kernel", places, indirect=True)]


runs = runs_in("local", "cluster") if BOTH else runs_in("local")


@pytest.fixture
def tutorial(kernel):
    """A function that executes a tutorial by its number."""

    def execute(number, *, own_cores=False):
        [path] = NOTEBOOKS.glob(f"{number:02}_*.ipynb")
        done = kernel.execute(path, new_session=own_cores and kernel.place == "cluster")
        shown = [output for cell in done.notebook.cells for output in cell.get("outputs", [])]
        assert not [output.text for output in shown if output.get("name") == "stderr"]
        assert done.value("spark.sparkContext.master").startswith("spark:") is (kernel.place == "cluster")
        return done

    return execute


def test_their_numbers_are_complete_and_each_is_there_once():
    assert [int(path.stem[:2]) for path in NUMBERED] == list(range(1, len(NUMBERED) + 1))


@per_tutorial
def test_each_says_at_its_top_what_you_learn_how_long_it_takes_and_what_it_needs(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert re.findall(r"^\* \*\*(.+?)\*\*", first.source, re.MULTILINE) == ["You learn", "It takes", "It needs"]


@per_tutorial
def test_one_cell_decides_the_master(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.id for cell in cells if ".master(" in cell.source] == ["session"]
    assert 'os.environ.get("MASTER", "local[2]")' in cells[0].source


@per_tutorial
def test_their_links_lead_somewhere(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for link in re.findall(r"\]\(([^)#\s]+)", cell.source) if cell.cell_type == "markdown" else []:
            assert (path.parent / link).exists(), link


class Test02FeedingDataFrames:
    pytestmark = runs

    def test_what_it_says_of_batches_epochs_and_ends(self, tutorial):
        done = tutorial(2)
        assert done.value("trained.view().launcher") == ("spark" if done.kernel.place == "cluster" else "local")
        assert done.value("first.results['chief:0']['image']") == "float32 (32, 784)"
        assert done.value("sorted(first.results['worker:0'])") == ["id", "image", "label", "sample_weight"]
        assert done.value("accuracy") > 0.8
        assert "500 + 500 rows; all different: True" in done.printed("epochs-check")
        assert "the same rows: True, in the same order: False" in done.printed("epochs-check")
        counted = {
            remainder: sum(counting for steps in nodes.values() for _, counting in steps)
            for remainder, nodes in done.value("ends").items()
        }
        assert counted == {"exact": 103, "pad": 103, "drop": 80}
        assert {size for steps in done.value("ends['pad']").values() for size, _ in steps} == {20}
        assert done.shown("uneven-plot") == ["display_data"]
        assert (done.value("total"), done.value("letters")) == (105, 10)
        assert done.error("refused")[0] == "ConfigError"


class Test03FilesAndTfrecords:
    pytestmark = runs

    def test_what_it_says_of_shares_accuracy_and_damage(self, tutorial):
        done = tutorial(3)
        assert done.printed("write").count(".tfrecord") == 5
        assert "image: binary" in done.printed("read")
        assert done.value("{node: files for node, (files, _) in from_records.results.items()}") == {
            "chief:0": 3,
            "worker:0": 2,
        }
        assert done.value("from_records.results['chief:0'][1]") > 0.8
        assert done.value("accuracy") > 0.8
        assert re.search(r"damaged/part-\S+: the record at byte \d+ cannot be read", done.printed("damaged"))


class Test04WatchingARun:
    pytestmark = runs

    def test_what_it_says_can_be_asked_for_is_there(self, tutorial):
        done = tutorial(4)
        assert done.value("len(watched.metrics)") > 3
        assert done.value("watched.metrics.val_accuracy.max()") > 0.7
        assert "image/png" in done.outputs("plot")[0].data
        assert "worker:0 begins" in done.printed("logs")
        assert {"launched", "running", "fed", "done"} <= set(done.value("watched.timings"))
        assert done.value("own.metrics.groupby('node').step.max().to_dict()") == {"chief:0": 40, "worker:0": 40}
        assert done.value("diagnosis.kind") in ("python", "straggler")
        assert "turn_and_blur" in done.printed("diagnose")
        assert {"chief-0/train", "chief-0/validation"} <= set(re.findall(r"chief-0/\w+", done.printed("event-files")))
        assert done.value("record['view']['state']") == "done"


class Test05WhenItBreaks:
    pytestmark = runs

    def test_what_it_says_of_errors_and_of_the_restart(self, tutorial):
        done = tutorial(5)
        name, text = done.error("exception")
        assert name == "NodeFailed"
        assert "ZeroDivisionError" in text
        assert "about to divide" in done.printed("after")
        assert list(done.value("hung")) == ["worker:0"]
        assert "wait_for_a_lock" in done.printed("stacks")
        assert "chief:0 raised ZeroDivisionError" in done.printed("catch")
        assert done.error("refused") == ("ConfigError", done.error("refused")[1])
        assert "epochs" in done.error("refused")[1]
        assert done.error("captured")[0] == "PayloadError"
        assert done.error("inline")[0] == "ZeroDivisionError"
        assert done.value("found") == [1.0, 0.5, 0.0]
        assert done.outputs("alone")[0].data["text/plain"] == "2.5"
        assert done.value("[restarts, epochs]") == [1, [2, 3]]
        assert done.value("accuracies[-1]") > 0.8


class Test06Titanic:
    pytestmark = runs

    def test_two_nodes_learn_who_survives_from_files(self, tutorial):
        done = tutorial(6)
        assert done.value("[node.name for node in cluster.nodes]") == ["chief:0", "worker:0"]
        model, rule = (float(number) for number in re.findall(r"(\d+\.\d)%", done.printed("score")))
        assert model == pytest.approx(100 * done.value("float(accuracy)"), abs=0.1)
        assert model > max(75.0, rule)
        assert done.printed("session") in ("", ALREADY_LOADED)
        for picture in ("look", "curve", "predictions"):
            assert done.shown(picture) == ["display_data"]
        assert done.printed("files").count("part-") == 5
        assert "survives" in done.outputs("write")[0].data["text/html"]


class Test07ParameterServers:
    pytestmark = runs

    def test_workers_learn_with_a_parameter_server_and_the_evaluator_sees_each_epoch(self, tutorial):
        done = tutorial(7)
        assert done.value("[node.name for node in servers.nodes]") == ["ps:0", "chief:0", "worker:0", "worker:1"]
        assert done.value("told['accuracy']") > 0.7
        assert done.value("told['steps']") == -(-done.value("train_df.count()") // 50)
        found = done.value("found")
        assert list(found) == ["1", "2", "3", "4"]
        assert max(found.values()) > 0.7


class Test08SearchAndSparkMl:
    pytestmark = runs

    def test_the_best_parameters_win_in_each_kind_of_search(self, tutorial):
        done = tutorial(8)
        assert done.value("len(found.table)") == 6
        assert done.value("found.best.params['lr']") == 0.003
        assert done.value("found.best.metric") == done.value("found.table.metric.max()")
        assert done.value("accuracy") > 0.6
        worse, better = done.value("tuned.validationMetrics")
        assert better > worse + 0.2
        assert done.value("same") is True


class Test09BatchInference:
    pytestmark = runs

    def test_all_ways_give_the_same_answers(self, tutorial):
        done = tutorial(9)
        assert done.value("accuracy") > 0.8
        assert done.value("float(same)") == pytest.approx(done.value("accuracy"))
        assert done.value("len(results)") == done.value("answers.count()")
        assert done.value("int(counts.sum())") == done.value("answers.count()")
        assert done.value("doubtful.certainty.is_monotonic_increasing")
        assert done.value("loud") == ["ONE", "TWO", "THREE"]


class Test10BackgroundAndStreams:
    pytestmark = runs

    def test_clusters_run_side_by_side_and_a_stream_is_read_whole(self, tutorial):
        done = tutorial(10)
        assert done.value("still_ran") is True
        assert done.value("endless.state") == "stopped"
        assert "endless" in done.outputs("status")[0].data["text/plain"]
        assert done.value("short.results['chief:0']") > 0.7
        assert done.value("seen") == 1_200
        assert done.shown("stream-plot") == ["display_data"]
        assert done.value("len(alone)") == 3
        assert done.value("together") > 0.7


class Test11NotebookToJob:
    pytestmark = runs

    def test_the_exported_program_trains_and_a_file_runs_on_a_node(self, tutorial):
        done = tutorial(11, own_cores=True)
        assert "looked at once" not in done.value("program")
        printed = done.printed("submit")  # the program's errors, too: spark-submit has one stream for all
        assert done.value("done.returncode") == 0, printed + done.value("done.stderr")[-3000:]
        returned = re.search(r"chief:0: (\d\.\d+)", printed)
        assert returned is not None, printed + done.value("done.stderr")
        assert float(returned[1]) > 0.7
        assert done.value("len(models)") >= 2
        counts = done.value("counts")
        assert counts["rows"] == 1_000
        assert f"chief:0: {counts['hits']} of 1000 rows are a 7" in done.printed("script-run")


class Test12FromTensorFlowOnSpark:
    pytestmark = runs

    def test_the_old_program_and_its_native_form_learn_alike(self, tutorial):
        done = tutorial(12)
        accuracy = done.value("accuracy")
        assert accuracy["old"] > 0.7
        assert accuracy["native"] > 0.7


class Test13TextClassification:
    pytestmark = runs

    def test_networks_learn_side_by_side_and_together_and_read_what_is_new(self, tutorial):
        done = tutorial(13)
        view = "__import__('tfos_lab').clusters()[-1].view()"
        fed = done.value(f"dict({view}.feeds[-1].rows)")
        assert list(fed) == ["worker:0", "worker:1"]
        assert all(fed.values())
        assert done.value(f"{{node.name: node.rows for node in {view}.nodes}}") == {
            node: 6 * rows for node, rows in fed.items()
        }
        assert done.value("accuracy") >= 0.85
        assert set(done.shown("compare")) <= {"display_data", "stream"}
        [table] = done.outputs("results-table")
        text = table.data["text/plain"]
        assert text.count("done") == 3
        assert {"filters", "words_at_once", "accuracy", "loss"} <= set(text.split())


@pytest.mark.skipif(not BOTH, reason="make tutorials runs it on a cluster; it has a test of its own without one")
class Test01OnACluster:
    pytestmark = runs_in("cluster")

    def test_four_nodes_learn_to_read(self, tutorial):
        done = tutorial(1, own_cores=True)
        assert done.value("len(cluster.nodes)") == 4
        assert done.value("float(accuracy)") > 0.8
