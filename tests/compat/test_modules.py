"""Modules of TensorFlowOnSpark without a cluster: TFManager, TFNode, TFSparkNode, compat, gpu_info and util."""

import getpass
import ipaddress
import multiprocessing
import os
import socket
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfos_lab.compat import TFManager, TFNode, TFSparkNode, compat, gpu_info, marker, util

# ---- TFManager -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["local", "remote"])
def test_another_process_can_use_a_managers_queues_and_values(mode):
    with TFManager.start(b"a secret", ["input"], mode) as manager:
        address = ("127.0.0.1", manager.address[1]) if mode == "remote" else manager.address
        other = TFManager.connect(address, "a secret")
        other.set("state", "running")
        assert str(manager.get("state")) == "'running'"
        other.get_queue("input").put({"x": [1, None]})
        queue = manager.get_queue("input")
        assert queue.get(timeout=60) == {"x": [1, None]}
        queue.task_done()
        queue.join()
        assert str(manager.get_queue("output")) == "None"
        assert TFManager.mgr is manager
        with pytest.raises(multiprocessing.AuthenticationError):
            TFManager.connect(address, b"another")


def test_an_empty_key_is_refused():
    with pytest.raises(ValueError, match="authkey is empty, and anyone could connect"):
        TFManager.start(b"", [])


# ---- TFNode ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default_fs", "path", "expected"),
    [
        ("file://", "hdfs://foo/bar", "hdfs://foo/bar"),
        ("file://", "/foo/bar", "file:///foo/bar"),
        ("file://", "foo/bar", "file:///work/here/foo/bar"),
        ("hdfs://", "/foo/bar", "hdfs:///foo/bar"),
        ("hdfs://nn:8020/", "/foo/bar", "hdfs://nn:8020/foo/bar"),
        ("hdfs://", "foo/bar", f"hdfs:///user/{getpass.getuser()}/foo/bar"),
        ("viewfs://nn", "foo/bar", f"viewfs://nn/user/{getpass.getuser()}/foo/bar"),
        ("s3a://bucket", "foo/bar", "s3a://bucket/foo/bar"),
    ],
)
def test_a_path_is_returned_in_full(default_fs, path, expected):
    ctx = TFSparkNode.TFNodeContext(defaultFS=default_fs, working_dir="/work/here")
    assert TFNode.hdfs_path(ctx, path) == ctx.absolute_path(path) == expected


@pytest.fixture(scope="module")
def manager():
    with TFManager.start(uuid.uuid4().bytes, ["input", "output"]) as running:
        yield running


@pytest.fixture
def put(manager):
    manager.set("state", "running")
    return lambda *items: [manager.get_queue("input").put(item) for item in items]


END = marker.EndPartition()


def test_batches_of_a_managers_queue_are_of_the_size_asked_for_until_the_end(manager, put):
    put(*range(10), None)
    feed = TFNode.DataFeed(manager)
    assert [feed.next_batch(2), feed.next_batch(4)] == [[0, 1], [2, 3, 4, 5]]
    assert (feed.should_stop(), feed.done_feeding) == (False, False)
    assert feed.next_batch(10) == [6, 7, 8, 9]
    assert (feed.should_stop(), feed.done_feeding) == (True, True)
    assert feed.next_batch(10) == []
    feed.queue_in.join()  # all of them are marked as done


def test_a_partition_ends_a_batch_only_when_not_training(manager, put):
    put(1, 2, END, 3, END, None)
    assert TFNode.DataFeed(manager, True).next_batch(10) == [1, 2, 3]
    put(END, 1, 2, END, 3, None)
    feed = TFNode.DataFeed(manager, False)
    assert [feed.next_batch(10), feed.next_batch(10)] == [[1, 2], [3]]


def test_columns_go_to_tensors_by_their_sorted_names_and_results_into_the_output_queue(manager, put):
    put(("a", 1), ("b", 2), None)
    feed = TFNode.DataFeed(manager, input_mapping={"text": "words", "label": "y"})
    assert feed.input_tensors == ["y", "words"]
    assert feed.next_batch(5) == {"y": ["a", "b"], "words": [1, 2]}
    feed.batch_results([1, "two"])
    queue = manager.get_queue("output")
    assert [queue.get(), queue.get()] == [1, "two"]


def test_terminate_sets_the_state_and_drops_what_is_in_the_queue(manager, put):
    put(*range(20), END)
    feed = TFNode.DataFeed(manager)
    feed.next_batch(2)
    feed.terminate()
    assert str(manager.get("state")) == "'terminating'"
    assert manager.get_queue("input").empty()
    assert feed.should_stop()
    feed.queue_in.join()


def test_releasing_the_port_closes_its_socket_once(caplog):
    ctx = SimpleNamespace(tmp_socket=socket.socket())
    held = ctx.tmp_socket
    held.bind(("127.0.0.1", 0))
    TFNode.release_port(ctx)
    assert (ctx.tmp_socket, held.fileno()) == (None, -1)
    TFNode.release_port(ctx)
    assert "nothing to release" in caplog.text


@pytest.mark.parametrize(
    "call",
    [
        lambda: TFNode.start_cluster_server(None),
        lambda: TFNode.export_saved_model(None, "", "", {}),
        lambda: TFNode.next_batch(None, 1),
        lambda: TFNode.batch_results(None, []),
        lambda: TFNode.terminate(None),
        lambda: TFSparkNode.TFNodeContext().start_cluster_server(),
        lambda: TFSparkNode.TFNodeContext().export_saved_model(None, "", "", {}),
    ],
)
def test_helpers_that_tensorflow_2_has_made_void_say_so(call):
    with pytest.raises(Exception, match="DEPRECATED"):
        call()


# ---- TFSparkNode -----------------------------------------------------------------------------------------------------


def test_a_context_can_be_made_without_a_cluster_and_counts_the_nodes_that_train():
    ctx = TFSparkNode.TFNodeContext()
    assert (ctx.executor_id, ctx.worker_num, ctx.job_name, ctx.task_index) == (0, 0, "", 0)
    assert (ctx.cluster_spec, ctx.num_workers, ctx.defaultFS, ctx.working_dir) == ({}, 0, "file://", ".")
    assert (ctx.mgr, ctx.tmp_socket) == (None, None)
    with pytest.raises(AttributeError, match="has no attribute 'dataset'"):
        _ = ctx.dataset
    spec = {"ps": ["a:1"], "chief": ["b:1"], "evaluator": ["c:1"], "worker": ["d:1", "e:1"]}
    ctx = TFSparkNode.TFNodeContext(3, "worker", 0, spec, "hdfs://nn", "/here")
    assert (ctx.executor_id, ctx.worker_num, ctx.num_workers) == (3, 3, 3)


def test_internals_are_gone_with_a_sentence():
    for name in ("run", "train", "inference", "shutdown", "_get_manager", "TFSparkNode"):
        with pytest.raises(AttributeError, match=f"TFSparkNode.{name} was TensorFlowOnSpark's way .* TFCluster.run"):
            getattr(TFSparkNode, name)
    assert not hasattr(TFSparkNode, "nothing")


# ---- compat ----------------------------------------------------------------------------------------------------------


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["keras", "tf_keras", "module"])
def test_the_chiefs_model_becomes_a_saved_model_and_a_workers_a_copy_of_its_own(kind, tmp_path, monkeypatch):
    import tensorflow as tf

    monkeypatch.setenv("TFOS_LAB_SCRATCH", str(tmp_path / "scratch"))
    if kind == "module":
        model = tf.Module()
    else:
        keras = pytest.importorskip(kind)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    compat.export_saved_model(model, f"file://{tmp_path}/chiefs", True)
    compat.export_saved_model(model, f"file://{tmp_path}/workers")
    loaded = tf.saved_model.load(str(tmp_path / "chiefs"))
    if kind != "module":
        (result,) = loaded.signatures["serving_default"](tf.constant([[1.0, 2.0]])).values()
        assert result.numpy().tolist() == [[3.0]]
    assert not (tmp_path / "workers").exists()
    assert (tmp_path / "scratch" / "worker_model" / "saved_model.pb").exists()
    monkeypatch.delenv("TFOS_LAB_SCRATCH")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compat.export_saved_model(model, "not-used")
    assert len(list(tmp_path.glob("tfos-model-*/worker_model"))) == 1, "no folder of a node: a temporary one"
    assert not Path("not-used").exists()


@pytest.mark.tensorflow
def test_auto_sharding_is_turned_off():
    import tensorflow as tf

    options = tf.data.Options()
    compat.disable_auto_shard(options)
    assert options.experimental_distribute.auto_shard_policy is tf.data.experimental.AutoShardPolicy.OFF
    assert compat.is_gpu_available() is bool(tf.config.list_physical_devices("GPU"))


# ---- gpu_info --------------------------------------------------------------------------------------------------------

NVIDIA_SMI = """\
#!/bin/sh
case "$*" in
*--list-gpus*)
  echo "GPU 0: Tesla V100-SXM2-16GB (UUID: GPU-aa)"
  echo "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)"
  echo "  MIG 1g.10gb Device 0: (UUID: MIG-cc)"
  echo "GPU 2: Tesla K80 (UUID: GPU-dd)";;
*--format=csv,noheader*) cat {busy}; : > {busy}; [ ! -e {again} ] || cat {again} > {busy};;
*) echo "uuid, pid"; echo "GPU-aa, 12";;
esac
"""


@pytest.fixture
def busy(monkeypatch, tmp_path):
    """A host of three GPUs, and the file of those that are busy the next time that it is asked."""
    program, busy = tmp_path / "nvidia-smi", tmp_path / "busy"
    program.write_text(NVIDIA_SMI.format(busy=busy, again=tmp_path / "again"))
    program.chmod(0o755)
    busy.touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("TFOS_LAB_GPU_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)  # it waits for 5 seconds before it looks again
    return busy


def test_without_a_driver_there_are_no_gpus(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "before")
    assert not gpu_info.is_gpu_available()
    util.single_node_env()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("count", "index", "expected"), [(1, 2, ["2"]), (2, 0, ["0", "1"]), (1, 3, ["0"]), (2, 1, ["2", "0"])]
)
def test_nodes_of_a_host_get_different_gpus(busy, count, index, expected):
    assert gpu_info.is_gpu_available()
    assert gpu_info.get_gpus(count, index, gpu_info.AS_LIST) == expected
    assert gpu_info.get_gpus(count, index) == ",".join(expected)
    assert sorted(gpu_info.get_gpus(3, format=gpu_info.AS_LIST)) == ["0", "1", "2"], "chosen at random"


@pytest.mark.parametrize(
    ("nodes", "index", "gpu"), [([], 2, "2"), (["a:1", "b:1", "a:2"], 2, "1"), (["a:1", "ab:1"], 1, "0")]
)
def test_the_gpus_of_a_host_are_divided_among_its_nodes(busy, nodes, index, gpu):
    util.single_node_env(1, index, nodes)
    assert os.environ.pop("CUDA_VISIBLE_DEVICES") == gpu


def test_busy_gpus_are_left_alone_and_looked_at_again_before_too_few_is_an_error(busy):
    busy.write_text("GPU-aa\nGPU-bb\n")
    assert gpu_info.get_gpus() == "2"
    busy.write_text("GPU-aa\nGPU-bb\n")
    assert gpu_info.get_gpus(2, 0) == "0,1", "the second time all are free"
    busy.write_text("GPU-aa\nGPU-bb\n")
    (busy.parent / "again").write_text("GPU-aa\nGPU-bb\n")
    with pytest.raises(Exception, match=r"Unable to find 2 free GPU\(s\) of 3(.|\n)*GPU-aa, 12"):
        gpu_info.get_gpus(2)
    with pytest.raises(Exception, match="Unknown GPU format 'text'"):
        gpu_info.get_gpus(format="text")


def test_a_node_keeps_to_its_own_gpus(busy, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,GPU-dd")
    assert gpu_info.get_gpus(2, 0) == "1,2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(Exception, match=r"Unable to find 1 free GPU\(s\) of 0"):
        gpu_info.get_gpus()


# ---- util ------------------------------------------------------------------------------------------------------------


def test_an_address_a_file_of_a_search_path_and_an_executors_number_are_found(tmp_path, monkeypatch):
    assert ipaddress.ip_address(util.get_ip_address())
    (tmp_path / "b" / "bin").mkdir(parents=True)
    (tmp_path / "b" / "bin" / "tool").write_text("")
    path = f"{tmp_path}/a{os.pathsep}{tmp_path}/b"
    assert util.find_in_path(path, "bin/tool") == f"{tmp_path}/b/bin/tool"
    assert util.find_in_path(path, "bin") is False
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match="no file executor_id"):
        util.read_executor_id()
    util.write_executor_id(3)
    assert util.read_executor_id() == 3


def test_hadoops_classpath_is_expanded_once(tmp_path, monkeypatch):
    for name in ("CLASSPATH", "CUDA_VISIBLE_DEVICES", "TFOS_CLASSPATH_UPDATED"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    tool = Path(tmp_path, "bin", "hadoop")
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "expanded:$*"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("HADOOP_PREFIX", str(tmp_path))
    for _ in range(2):
        util.single_node_env(0)
    assert os.environ["CLASSPATH"] == "expanded:classpath --glob"
    assert os.environ["TFOS_CLASSPATH_UPDATED"] == "1"
