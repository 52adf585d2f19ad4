"""A run as one HTML file to send to somebody."""

import re

import pytest
from IPython.core.formatters import DisplayFormatter

import tfos_lab
from tests.support.outline import Outline
from tests.support.recorded_runs import write_run
from tfos_lab.driver.record.format import CodeRecord
from tfos_lab.driver.state.events import ShownView
from tfos_lab.errors import ConfigError

CODE = """def train(args, ctx):
    password = 'hunter2'
    client(api_key="sk-12345", retries=3)
    df = read("/home/ada/data/train.csv")
    print(len(tokens), a/b)
"""
LOG = """saved to /home/ada/work/model.keras, 3/4 done
export AWS_SECRET_ACCESS_KEY=abcdef
s3://key:s3cr3t@bucket/data https://example.org/a/b
<script>alert(1)</script>
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def write(folder, **fields):
    shown = (ShownView(node="chief:0", name="samples", step=3, time_s=1.0, file="shown/0001.png"),)
    code = CodeRecord(name="train", file="/home/ada/work/train.py", line=1, source=CODE)
    path = write_run(folder, code=code, log=LOG, shown=shown, options={"log_dir": "/home/ada/logs/here"}, **fields)
    (path / "shown").mkdir()
    (path / "shown/0001.png").write_bytes(b"\x89PNG\r\n\x1a\n....IHDR" + bytes([0, 0, 0, 8] * 2))
    return path


def test_a_report_has_all_that_a_reader_elsewhere_wants_and_nothing_else(folder):
    path = tfos_lab.runs()[write(folder)].report()
    assert path == folder.parent / "mnist-20260101-120000-1f2e.html"
    html = path.read_text()
    told = " ".join(Outline(html).texts)
    for words in (
        "mnist", "done", "loss", "samples step 3", "python (version)", "…/here", "Code of …/train.py",
        'read("…/train.csv")', "saved to …/model.keras, 3/4 done", "len(tokens), a/b", "https://example.org/a/b",
        "password = (not recorded)", "api_key=(not recorded), retries=3", "AWS_SECRET_ACCESS_KEY=(not recorded)",
        "s3://***@bucket/data", "<script>alert(1)</script>",
    ):  # fmt: skip
        assert words in told, words
    for secret in ("hunter2", "sk-12345", "abcdef", "s3cr3t", "/home", str(folder), "%tfos"):
        assert secret not in html, secret
    assert not {"script", "link", "iframe", "a"} & set(Outline(html).tags)
    assert Outline(html).tags.count("img") == 1
    assert re.findall(r'(?:src|href)="([^,"]*)', html) == ["data:image/png;base64"]


def test_a_run_that_goes_on_and_a_named_place(folder, tmp_path):
    run = tfos_lab.runs()[write(folder, state="running", ended_s=None)]
    path = run.report(tmp_path / "mine.html")
    assert path == tmp_path / "mine.html"
    assert "script" not in Outline(path.read_text()).tags
    assert run.report(tmp_path).name == "mnist-20260101-120000-1f2e.html"
    with pytest.raises(ConfigError, match=r"cannot be written to .*No such file or directory; name another file"):
        run.report(tmp_path / "none" / "mine.html")


def test_a_live_cluster_has_one(folder):
    def train(_args, ctx):
        ctx.report(1, loss=0.5)
        ctx.show([[9, 1], [2, 8]], "confusion", labels=["cat", "dog"])

    with tfos_lab.run(train, cluster_size=1, local="inline", name="live") as cluster:
        cluster.wait()
        assert cluster.report() == folder.parent / f"{cluster.id}.html"
    told = " ".join(Outline((folder.parent / f"{cluster.id}.html").read_text()).texts)
    assert "confusion" in told
    assert "ctx.report(1, loss=0.5)" in told
    # What a cell shows that ends with it.
    for handle in (cluster, tfos_lab.runs()[cluster.id]):
        bundle = DisplayFormatter().format(handle)[0]
        assert bundle["text/plain"] == repr(handle)
        assert {"confusion", "loss", "live"} <= set(Outline(bundle["text/html"]).texts)


def test_the_magic_writes_the_newest_run_or_a_named_one(folder, run, said, problem):
    write(folder)
    assert said("%tfos export mine.html") == [f"wrote {folder.parent}/mine.html"]
    assert said("%tfos export mine.html 1f2e") == [f"wrote {folder.parent}/mine.html"]
    assert "no run" in problem("%tfos export mine.html nobody")
