"""``tfos-lab run-script``: runs a Python file on the nodes of a cluster; its exit code is the outcome."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.cli.paths import find_checkout, kernel_environ
from tfos_lab.cli.terminal import echo, echo_error
from tfos_lab.core.config import RunOptions
from tfos_lab.core.options import OptionType, options_for
from tfos_lab.errors import ClusterEnded, ConfigError, TfosError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION = """\
Run a plain Python file on the nodes of a cluster. Each node has its role, in TF_CONFIG, and its parameters, on the
command line of the script and as `args`. Without --node and --nodes, one worker runs it.

  tfos-lab run-script train.py --node chief:lr=0.1,epochs=3 --node worker:lr=0.2
  tfos-lab run-script train.py --nodes nodes.json --data 'rows/*.parquet' --master spark://host:7077
  tfos-lab run-script train.py --node 'worker:{"units": [64, 32]}' --output-dir models --keep-versions 3

The exit code is 0 if all nodes have run to their end, 1 if one failed, 2 if nothing could be started, and 130 if it was
interrupted."""

FAILED, REFUSED, INTERRUPTED = 1, 2, 130

_OPTIONS = options_for(RunOptions, "run_script")


def run(arguments: Sequence[str]) -> int:
    """Run a script; returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        with _session(given) as spark:
            return _run(given, spark)
    except KeyboardInterrupt:
        echo_error("tfos-lab run-script: interrupted, and its nodes were stopped")
        return INTERRUPTED
    except TfosError as error:
        echo_error(f"tfos-lab run-script: {error}")
        return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tfos-lab run-script", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", metavar="PATH", help="the Python file")
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="ROLE[:NAME=VALUE,…]",
        help="one node and its parameters; values are JSON or plain text; repeat it for each node",
    )
    parser.add_argument("--nodes", metavar="FILE", help='JSON: [{"job_name": "worker", "params": {"lr": 0.1}}, …]')
    parser.add_argument("--function", metavar="NAME", help="call this function with (args, ctx)")
    parser.add_argument("--files", action="append", default=[], metavar="PATTERN", help="files that travel along, too")
    parser.add_argument("--data", action="append", metavar="PATH", help="rows to share out: path, pattern or table")
    parser.add_argument("--data-format", default="parquet", help="how {data_dir} holds them: parquet, json or arrow")
    parser.add_argument("--master", help="where Spark runs, such as spark://host:7077 (default: this machine)")
    parser.add_argument("--output-dir", metavar="DIR", help="folder that keeps the output of each run as a version")
    parser.add_argument("--keep-versions", type=int, metavar="N", help="how many of them to keep (default: all)")
    parser.add_argument("--name", help="label of the run")
    parser.add_argument("--quiet", action="store_true", help="write the outcome only")
    options = parser.add_argument_group("options of the run")
    for one in _OPTIONS:
        name, meaning = f"--{one.name.replace('_', '-')}", one.meaning.replace("%", "%%")
        if one.type is OptionType.FLAG:
            options.add_argument(name, action="store_const", const="true", help=meaning)
        else:
            options.add_argument(name, metavar="|".join(one.choices) or "VALUE", help=meaning)
    return parser


def _given_options(given: argparse.Namespace) -> dict[str, Any]:
    from tfos_lab.notebook.options import UnreadableValue, read_value

    values = {}
    for one in _OPTIONS:
        text = getattr(given, one.name)
        if text is None:
            continue
        try:
            values[one.name] = read_value(one, text, {})
        except UnreadableValue:
            raise ConfigError([f"--{one.name.replace('_', '-')} {text}: the option takes: {one.type_text}"]) from None
    return values


@contextmanager
def _session(given: argparse.Namespace) -> Iterator[SparkSession | None]:
    """Make the session that is needed, and stop it at the end; that of spark-submit is used as it is."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not (given.master or given.data or is_submitted):
        yield None
        return
    from pyspark.sql import SparkSession

    if not is_submitted:
        os.environ.update(kernel_environ(os.environ, find_checkout()))
    builder = SparkSession.builder.appName("tfos-lab run-script").config("spark.ui.showConsoleProgress", "false")
    spark = (builder.master(given.master) if given.master else builder).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _run(given: argparse.Namespace, spark: SparkSession | None) -> int:
    from tfos_lab.notebook.run_script import run_script

    options = _given_options(given)
    if (nodes := _nodes(given)) is not None:
        options["nodes"] = nodes
    handle = run_script(
        given.path,
        data=given.data[0] if given.data and len(given.data) == 1 else given.data,
        function=given.function,
        files=given.files,
        keep_versions=given.keep_versions,
        output_dir=given.output_dir,
        data_format=given.data_format,
        spark=spark,
        name=given.name,
        show=not given.quiet,
        **options,
    )
    with handle:
        try:
            handle.wait()
        except (TfosError, OSError) as error:
            echo_error(f"tfos-lab run-script: {error}")
            return INTERRUPTED if isinstance(error, ClusterEnded) else FAILED
    if handle.version is not None:
        echo(f"output: {handle.version}")
    return 0


def _nodes(given: argparse.Namespace) -> list[Any] | None:
    """Return the nodes that the command line names, or None if it names none."""
    if given.node and given.nodes:
        raise ConfigError(["--node and --nodes were both given: name the nodes by one of them"])
    if not given.nodes:
        return [parse_node(text) for text in given.node] or None
    try:
        nodes = json.loads(Path(given.nodes).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"--nodes {given.nodes}: {error.strerror}"]) from None
    except ValueError as error:
        raise ConfigError([f"--nodes {given.nodes} is no JSON: {error}"]) from None
    if not isinstance(nodes, list):
        raise ConfigError([f'--nodes {given.nodes}: a list is needed, such as [{{"job_name": "worker"}}]'])
    return nodes


def parse_node(text: str) -> dict[str, Any]:
    """Return the node that a text such as ``worker:lr=0.1,epochs=3`` or ``worker:{"lr": 0.1}`` names."""
    job, _, rest = text.partition(":")
    if rest.lstrip().startswith("{"):
        try:
            return {"job_name": job, "params": json.loads(rest)}
        except ValueError as error:
            raise ConfigError([f"--node {text}: {error}"]) from None
    params = {}
    for pair in filter(None, rest.split(",")):
        name, found, value = pair.partition("=")
        if not found:
            raise ConfigError([f"--node {text}: {pair!r} has no value: write NAME=VALUE"])
        try:
            params[name.strip()] = json.loads(value)
        except ValueError:
            params[name.strip()] = value
    return {"job_name": job, "params": params}
