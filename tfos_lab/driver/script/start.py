"""Checks what `tfos_lab.run_script` is asked for, and makes the run; nothing is started yet.

The nodes are checked, and put in the order of their ranks. The script is read: its syntax is checked, and what travels
along with it is found.
"""

from __future__ import annotations

import ast
import json
import os
import re
import symtable
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tfos_lab.core.config import ClusterConfig, FeedConfig, FeedOptions, NodeOptions, RunOptions, assign_roles
from tfos_lab.core.launchers import launcher_for
from tfos_lab.core.options import given_options, is_int, part_of
from tfos_lab.core.roles import Role
from tfos_lab.driver.feed.files.source import is_table, text_of
from tfos_lab.driver.feed.request import check_rows
from tfos_lab.driver.script.run import ScriptRun, Versions
from tfos_lab.driver.start import make_cluster
from tfos_lab.errors import ConfigError, NoSession
from tfos_lab.launchers.spark.session import active_session
from tfos_lab.node.script import SentScript, named_placeholders, run_sent_script
from tfos_lab.texts import first_line, nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_WORKER: tuple[Mapping[str, Any], ...] = ({"job_name": "worker"},)
DATA_FORMATS = ("parquet", "json", "arrow")

_lock = threading.Lock()
_runs: list[ScriptRun] = []


def make_script_run(
    path: str | os.PathLike[str],
    nodes: Sequence[Mapping[str, Any]] = ONE_WORKER,
    *,
    data: Any = None,
    function: str | None = None,
    files: Sequence[str] = (),
    keep_versions: int | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    data_format: str = "parquet",
    spark: SparkSession | None = None,
    name: str | None = None,
    options: RunOptions,
) -> ScriptRun:
    """Check what `tfos_lab.run_script` is asked for, and return a run that is not started yet."""
    script, found = _read_script(path, function=function, files=files)
    counts, params = _plan_nodes(nodes)
    given = [count for count in NodeCounts.__annotations__ if count in options]
    problems = [f"{count}: the list of nodes says which there are; leave it out" for count in given]
    if data_format not in DATA_FORMATS:
        problems.append(f"data_format={data_format!r}: use one of {', '.join(DATA_FORMATS)}")
    if data is None and "data_dir" in named_placeholders(list(params)):
        problems.append("nodes: a parameter names {data_dir}, but there is no data: give data=...")
    if problems:
        raise ConfigError(problems)
    asked = given_options(RunOptions, "run_script", options)
    feed = FeedConfig(**part_of(FeedOptions, asked))
    config = ClusterConfig(**counts, **part_of(NodeOptions, asked), name=name or _free_name(script.stem))
    launcher = launcher_for(config.local)
    if launcher is not None and launcher.runs_inline:
        advice = "use local='processes', and import its function to debug it here"
        raise ConfigError([f"local={config.local!r}: {script.name} becomes the main program of a process; {advice}"])
    spark = spark or getattr(data, "sparkSession", None)
    data = _checked_rows(data, feed, spark)
    versions = None
    if output_dir is not None or keep_versions is not None:
        versions = Versions(output_dir or Path("output") / script.stem, keep_versions)
    sent = SentScript(
        home=str(script.parent),
        name=script.name,
        files=found,
        params=params,
        function=function,
        data_format=data_format,
    )
    cluster = make_cluster(run_sent_script, sent, spark=spark, config=config, chief_stays_here=False)
    run = ScriptRun(cluster, script, data=data, feed=feed, versions=versions)
    with _lock:
        _runs.append(run)
    return run


def script_runs() -> list[ScriptRun]:
    """Return all script runs of this process, oldest first, ended ones included."""
    with _lock:
        return list(_runs)


def _free_name(stem: str) -> str:
    """Return the script's name, with a number where another run of it goes on."""
    taken = {run.name for run in script_runs() if not run.ended}
    names = (stem, *(f"{stem}-{number}" for number in range(2, len(taken) + 2)))
    return next(name for name in names if name not in taken)


def _checked_rows(data: Any, feed: FeedConfig, spark: SparkSession | None) -> Any:
    """Return what `Cluster.train` takes; a table may be of any kind that Spark reads."""
    if not is_table(data):
        return check_rows(data, feed.columns, spark, objects=feed.objects)
    session = spark or active_session()
    if session is None:
        reason = f"{text_of(data)}: there is no such file, and no SparkSession that knows a table of this name"
        raise NoSession(reason=reason, for_rows=True)
    try:
        return session.table(data)
    except Exception as error:
        raise ConfigError([f"{text_of(data)} cannot be read: {first_line(error)}"]) from error


# ---- the nodes ------------------------------------------------------------------------------------------------------

_KEYS = ("job_name", "task_index", "params")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class NodeCounts(TypedDict):
    """The options of `tfos_lab.run` that determine the nodes."""

    cluster_size: int
    num_ps: int
    master_node: str | None
    evaluator: bool


def _plan_nodes(nodes: Sequence[Mapping[str, Any]]) -> tuple[NodeCounts, tuple[dict[str, Any], ...]]:
    """Return options and, by rank, parameters of the nodes of ``[{"job_name": "worker", "params": {"lr": 0.1}}, …]``.

    Raises ConfigError with every problem found, and what is allowed.
    """
    if isinstance(nodes, str | bytes | Mapping) or not isinstance(nodes, Sequence) or not nodes:
        raise ConfigError(
            [f"nodes={nodes!r}: a list with a dict for each node is needed, such as [{{'job_name': 'worker'}}]"]
        )
    problems = [problem for place, node in enumerate(nodes) for problem in _problems_of(place, node)]
    if not problems:
        problems = list(_problems_together(nodes))
    if problems:
        raise ConfigError(problems)
    jobs = [_job(node) for node in nodes]
    leaders = [job for job in jobs if Role(job).leads]
    options: NodeCounts = {
        "cluster_size": len(nodes),
        "num_ps": jobs.count(Role.PS),
        "master_node": leaders[0] if leaders else None,
        "evaluator": Role.EVALUATOR in jobs,
    }
    by_node = {f"{_job(node)}:{index}": node.get("params") or {} for node, index in _with_index(nodes)}
    specs = assign_roles(ClusterConfig(**options))
    return options, tuple(dict(by_node[spec.node]) for spec in specs)


def _job(node: Mapping[str, Any]) -> str:
    return str(node.get("job_name", Role.WORKER.value))


def _with_index(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the nodes with their numbers within their jobs: those given, or those of their order."""
    counts: dict[str, int] = {}
    for node in nodes:
        job = _job(node)
        yield node, node.get("task_index", counts.get(job, 0))
        counts[job] = counts.get(job, 0) + 1


def _problems_of(place: int, node: Any) -> Iterator[str]:
    """Yield the problems of a single node."""
    where = f"nodes[{place}]"
    if not isinstance(node, Mapping):
        yield f"{where} is a {type(node).__name__}: a dict is needed, such as {{'job_name': 'worker', 'params': {{…}}}}"
        return
    yield from (f"{where}: there is no key {key!r}; {_advice(key, _KEYS)}" for key in node if key not in _KEYS)
    job, index = node.get("job_name", Role.WORKER.value), node.get("task_index", 0)
    if job not in list(Role):
        yield f"{where}: job_name={job!r}: there is no such role; {_advice(job, [role.value for role in Role])}"
    if not is_int(index) or index < 0:
        yield f"{where}: task_index={index!r}: a whole number from 0 on is needed"
    yield from _param_problems(where, node.get("params"))


def _param_problems(where: str, params: Any) -> Iterator[str]:
    if params is None:
        return
    if not isinstance(params, Mapping):
        yield f"{where}: params is a {type(params).__name__}: a dict of names and values is needed"
        return
    for name, value in params.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"{where}: params[{name!r}]: a name of letters, digits and _ is needed, for the option --name"
            continue
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            yield f"{where}: params[{name!r}]: {error}; numbers, texts, flags, lists and dicts can be parameters"


def _problems_together(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the problems of nodes that are valid one by one."""
    jobs = [_job(node) for node in nodes]
    leaders = [place for place, job in enumerate(jobs) if Role(job).leads]
    yield from _too_many("chief", leaders, "make the others workers")
    evaluators = [place for place, job in enumerate(jobs) if job == Role.EVALUATOR]
    yield from _too_many("evaluator", evaluators, "leave the others out")
    if not any(Role(job).trains for job in jobs):
        yield f"nodes: none of {', '.join(jobs)} trains: add a worker or a chief"
    by_job: dict[str, list[int]] = {}
    for node, index in _with_index(nodes):
        by_job.setdefault(_job(node), []).append(index)
    for job, indices in by_job.items():
        if sorted(indices) != list(range(len(indices))):
            wanted = ", ".join(map(str, range(len(indices))))
            given = ", ".join(map(str, indices))
            yield f"nodes: the task_index of job_name={job!r} is {given}: each of {wanted} is needed once"


def _too_many(role: str, places: list[int], advice: str) -> Iterator[str]:
    if len(places) > 1:
        which = " and ".join(f"nodes[{place}]" for place in places)
        yield f"{which}: a cluster has one {role} at most; {advice}"


def _advice(word: object, candidates: Iterable[str]) -> str:
    known = list(candidates)
    near = nearest(str(word).lower(), known)
    return f"did you mean {near!r}?" if near else f"use {', '.join(known[:-1])} or {known[-1]}"


# ---- the script -----------------------------------------------------------------------------------------------------

# Each node gets all of it within its start message.
LIMIT_BYTES = 64 << 20


def _read_script(
    path: str | os.PathLike[str], *, function: str | None, files: Sequence[str]
) -> tuple[Path, dict[str, bytes]]:
    """Read a script and the modules of its folder that it imports, and those imported by them.

    It has to have ``function``, if one is named; ``files`` are patterns of further files, within the script's folder.
    Raises ConfigError if there is no such file or function, a file cannot be parsed, or all of them are too large.
    """
    script = _existing(path)
    data = script.read_bytes()
    tree = _parsed(script, data)
    if function is not None:
        _require_function(script, tree, function)
    found = {script.name: data}
    for other in (*_imported(script.parent, tree, {script}), *_named(script.parent, files)):
        found[other.relative_to(script.parent).as_posix()] = other.read_bytes()
        _require_small(script, found)
    return script, found


def _existing(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ConfigError([f"path is a {type(path).__name__}: the path of a Python file is needed"])
    script = Path(path).expanduser().absolute()
    if script.is_file():
        return script
    if script.exists():
        raise ConfigError([f"{script} is no file: give the path of a Python file"])
    beside = [other.name for other in script.parent.glob("*.py")] if script.parent.is_dir() else []
    near = nearest(script.name, beside)
    advice = f"did you mean {near}?" if near else "give the path of a Python file"
    raise ConfigError([f"there is no script {script}; {advice}"])


def _parsed(path: Path, data: bytes) -> ast.Module:
    try:
        return ast.parse(data, str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line}" if line else ""
        raise ConfigError(
            [f"{path}, line {error.lineno}{shown}: {error.msg}; correct it, nothing was started"]
        ) from None
    except ValueError as error:
        raise ConfigError([f"{path} is no Python file: {error}"]) from None


def _require_function(path: Path, tree: ast.Module, function: str) -> None:
    if not isinstance(function, str):
        raise ConfigError([f"function={function!r:.60}: the name of a function in {path} is needed"])
    names = symtable.symtable(ast.unparse(tree), str(path), "exec").get_symbols()
    bound = {symbol.get_name() for symbol in names if symbol.is_assigned() or symbol.is_imported()}
    imports_all = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))
    if function in bound or imports_all:
        return
    functions = [symbol.get_name() for symbol in names if symbol.is_namespace()]
    near = nearest(function, functions)
    there = f"it has {', '.join(functions)}" if functions else "it has none; leave function out to run the whole file"
    advice = f"did you mean {near!r}?" if near else there
    raise ConfigError([f"{path} has no function {function!r}; {advice}"])


def _imported(home: Path, tree: ast.Module, seen: set[Path]) -> Iterator[Path]:
    """Yield the files in the script's folder that a module imports, and those that they import."""
    for name in sorted(_names_imported_by(tree)):
        for path in _files_of(home, name):
            if path in seen:
                continue
            seen.add(path)
            yield path
            if path.suffix == ".py":
                yield from _imported(home, _parsed(path, path.read_bytes()), seen)


def _names_imported_by(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _files_of(home: Path, name: str) -> list[Path]:
    """Return the file or the whole package of a module in the script's folder; nothing for one from elsewhere."""
    folder = home / name
    if folder.is_dir() and any(folder.glob("*.py")):
        return _files_below(folder)
    return [path] if (path := home / f"{name}.py").is_file() else []


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not _is_private(path.relative_to(folder)))


def _is_private(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _named(home: Path, patterns: Iterable[str]) -> Iterator[Path]:
    if isinstance(patterns, str):
        patterns = [patterns]
    for pattern in patterns:
        inside = not Path(pattern).is_absolute() and ".." not in Path(pattern).parts
        found = sorted(home.glob(pattern)) if inside and pattern else []
        if not found:
            where = f"nothing in {home} matches" if inside else f"only what is in {home} travels with the script"
            raise ConfigError([f"files={pattern!r}: {where}; name files or patterns such as 'config/*.json'"])
        for path in found:
            yield from _files_below(path) if path.is_dir() else [path]


def _require_small(script: Path, files: dict[str, bytes]) -> None:
    total = sum(map(len, files.values()))
    if total <= LIMIT_BYTES:
        return
    largest = max(files, key=lambda name: len(files[name]))
    what = f"{script.name} and the files that travel with it take more than {LIMIT_BYTES / 1e6:,.0f} MB"
    advice = "give rows with data=..., and keep other large files where the nodes can read them"
    raise ConfigError([f"{what}, most of it {largest}: {advice}"])
