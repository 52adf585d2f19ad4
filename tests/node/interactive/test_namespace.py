"""One node's names: those that cells have made stay, any other is the notebook's."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tfos_lab.engine.interactive.source import compile_text
from tfos_lab.node.interactive.namespace import InteractiveCell, Namespace
from tfos_lab.node.interactive.written import LIMIT_CHARS, CopiedOutput, WrittenText


@pytest.fixture
def namespace(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return Namespace({"a": 1}, SimpleNamespace(node="worker:0"))


def cell(text, **captured):
    compiled = compile_text(text)
    return InteractiveCell(body=compiled.body, last=compiled.last, captured=captured)


def test_names_stay_and_the_last_expression_is_the_value(namespace):
    assert namespace.run(cell("x = args['a']\ndef f():\n    return x, ctx.node")) is None
    assert namespace.run(cell("f()")) == (1, "worker:0")
    assert namespace.own == ["f", "x"]


def test_captured_values_follow_the_notebook_until_a_cell_assigns_the_name(namespace):
    assert namespace.run(cell("rate", rate=1)) == 1
    assert namespace.run(cell("rate", rate=2)) == 2
    assert namespace.own == []
    assert namespace.run(cell("rate += 1\nrate", rate=2)) == 3
    assert namespace.run(cell("rate", rate=2)) == 3
    assert namespace.own == ["rate"]


def test_classes_of_cells_can_be_pickled(namespace):
    assert namespace.run(cell("import pickle\nclass A:\n    n = 3\npickle.loads(pickle.dumps(A())).n")) == 3


def installed_output(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    output = CopiedOutput()
    output.install()
    return output


def test_a_logger_of_one_cell_writes_below_the_next(monkeypatch):
    output, sent = installed_output(monkeypatch), []
    with output.to(WrittenText(lambda *_written: None)):
        stream = sys.stdout
    stream.write("between cells")
    with output.to(WrittenText(lambda _stream, text: sent.append(text))):
        stream.write("below the second")
    assert sent == ["below the second"]


def test_text_is_sent_in_order_and_bounded(monkeypatch, capsys):
    output, sent = installed_output(monkeypatch), []
    with output.to(WrittenText(lambda stream, text: sent.append((stream, text)))):
        sys.stdout.write("one\n")
        sys.stderr.write("two\n")
        sys.stdout.writelines(["x" * LIMIT_CHARS, "\n"])
        sys.stdout.write("not any more")
    text = "".join(text for _, text in sent)
    assert text.startswith("one\ntwo\nxxx")
    assert text.endswith("x\n… the rest is in the log\n")
    assert [stream for stream, _ in sent if stream == "stderr"] == ["stderr"]
    assert "not any more" in capsys.readouterr().out
