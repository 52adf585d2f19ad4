"""`tfos_lab.gfile` on a real HDFS: it answers as TensorFlow's own file system does, and shows no half-written file."""

import getpass
import os
import signal
import socket

import pytest

import tfos_lab.gfile
from tests.gfile.operations import OPERATIONS, expected_outcome, outcome, read, write
from tests.rigs.killed_savers import WAYS, kill_savers
from tests.support.lazy import Lazy
from tfos_lab.errors import ConfigError

tf = Lazy("tensorflow")
gfile = Lazy("tensorflow.io.gfile")

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module", autouse=True)
def _registered():
    tfos_lab.gfile.register()


@pytest.fixture
def base(yarn, tmp_path):
    address = f"{yarn.hdfs}{tmp_path}"
    gfile.makedirs(address)
    return address


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_tensorflow_s_own_file_system_answers_hdfs_answers(name, base, tmp_path):
    if name == "a name with a colon":  # HDFS has none
        expected = ("InvalidArgumentError", 3)
    else:
        expected = expected_outcome(name, tmp_path / "native")
    assert outcome(OPERATIONS[name], f"{base}/x") == expected


def test_a_file_of_several_blocks_is_read_in_order_and_out_of_order(base):
    data = os.urandom(20_000_003)
    write(f"{base}/large", data, "wb")
    assert read(f"{base}/large", "rb") == data
    with gfile.GFile(f"{base}/large", "rb") as file:
        for offset in (19_999_000, 5, 10_000_000, 10_000_100):
            file.seek(offset)
            assert file.read(1000) == data[offset : offset + 1000]


def test_a_file_that_is_flushed_is_there_with_its_length_and_can_be_written_on(base):
    with gfile.GFile(f"{base}/f", "w") as file:
        file.write("first ")
        assert gfile.listdir(base) == []
        file.flush()
        assert gfile.listdir(base) == ["f"]
        assert gfile.stat(f"{base}/f").length == 6
        file.write("second")
        file.flush()
        assert gfile.stat(f"{base}/f").length == 12
        file.write(" third")
    # hdfs-native reads what has been closed; Hadoop's own client reads what has been flushed.
    assert read(f"{base}/f") == "first second third"


@pytest.mark.timeout(1800)
def test_kills_while_saving_leave_no_broken_model_and_no_broken_checkpoint(base):
    # Once for each way to save, and once more, as the next process looks at what a kill has left.
    killed = kill_savers(f"{base}/store", kills=len(WAYS) + 1)
    assert sum(killed.values()) > 1, "in the middle of a save, and not just after it"


def test_a_folder_of_another_user_is_refused_to_tensorflow_and_before_anything_starts(base, monkeypatch, tmp_path):
    write(f"{base}/f", "text")
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))  # with other settings, HDFS is opened anew
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    refused = "Permission denied: user=somebody, access=WRITE"
    with pytest.raises(tf.errors.PermissionDeniedError) as caught:
        write(f"{base}/new", "text")
    assert caught.value.message.startswith(f"{base}/new: ")
    assert refused in caught.value.message
    with pytest.raises(ConfigError) as caught:
        tfos_lab.run(lambda: None, cluster_size=2, log_dir=base, local="processes")
    assert f"path='{base}': {socket.gethostname()} cannot write to it: " in str(caught.value)
    assert refused in str(caught.value)
    assert not (tmp_path / "runs").exists()
    assert gfile.listdir(base) == ["f"]
    assert read(f"{base}/f") == "text"


def test_an_address_without_a_host_is_on_the_file_system_of_hadoop_s_settings(yarn, base, monkeypatch, tmp_path):
    """Those of the variable as it is now, which a notebook may set again for another session."""
    write(f"{base}/f", "text")
    address = f"hdfs://{base.removeprefix(yarn.hdfs)}/f"
    other = "<property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:1</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{other}</configuration>")
    monkeypatch.setenv("TFOS_LAB_DEFAULT_FS", "")  # that of a session
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert not is_there(address)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf_dir))
    assert read(address) == "text"
    monkeypatch.setenv("TFOS_LAB_DEFAULT_FS", "hdfs://127.0.0.1:1")
    assert not is_there(address)


def is_there(address):
    """Whether a file is there, as far as is known after a second: a wrong NameNode is tried for longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfos_lab.gfile, "_ANSWER_S", 1.0)
        try:
            return gfile.exists(address)
        except tf.errors.OpError:
            return False


def test_a_namenode_that_is_not_there_is_one_sentence():
    with pytest.raises(tf.errors.OpError) as caught:
        gfile.exists(f"hdfs://127.0.0.1:1/user/{getpass.getuser()}")
    assert caught.value.message.startswith("hdfs://127.0.0.1:1/user/")
    assert "\n" not in caught.value.message


def test_a_namenode_that_stands_still_is_an_error_after_a_time(yarn, base, monkeypatch):
    write(f"{base}/f", "text")
    monkeypatch.setattr(tfos_lab.gfile, "_ANSWER_S", 1.0)
    os.kill(yarn.pid, signal.SIGSTOP)
    try:
        with pytest.raises(tf.errors.DeadlineExceededError, match="no answer for 1 s"):
            gfile.exists(f"{base}/f")
    finally:
        os.kill(yarn.pid, signal.SIGCONT)
    monkeypatch.undo()
    assert read(f"{base}/f") == "text"
