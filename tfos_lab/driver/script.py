"""`tfos_lab.run_script`: checks what is asked for, runs a script on its nodes, and keeps its output.

The nodes are checked, and put in the order of their ranks. The script is read: its syntax is checked, and what travels
along with it is found. A thread follows the run to its end. The kept output of runs is in one folder: ``version-0001``,
``version-0002``, … and ``latest``.
"""

from __future__ import annotations

import contextlib
import dis
import fcntl
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import (
    ClusterConfig,
    FeedConfig,
    FeedOptions,
    NodeOptions,
    RunOptions,
    assign_roles,
    train_keywords,
)
from tfos_lab.core.launchers import launcher_for
from tfos_lab.core.options import given_options, is_int, part_of
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.core.roles import Role
from tfos_lab.core.sources import imported_names
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.feed.files.source import is_table, text_of
from tfos_lab.driver.feed.request import check_rows
from tfos_lab.driver.results import Results
from tfos_lab.driver.start import clusters, make_cluster
from tfos_lab.errors import ClusterEnded, ConfigError, NoSession, WaitTimeout
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.session import active_session, lost_connect_server
from tfos_lab.node.script import SentScript, named_placeholders, run_sent_script
from tfos_lab.texts import first_line, nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_WORKER: tuple[Mapping[str, Any], ...] = ({"job_name": "worker"},)
DATA_FORMATS = ("parquet", "json", "arrow")
# Each node gets all of it within its start message.
LIMIT_BYTES = 64 << 20
# What a node of the list may have, how a parameter may be called, and the options that the list stands for.
_KEYS = ("job_name", "task_index", "params")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_COUNTS = ("cluster_size", "num_ps", "master_node", "evaluator")
LATEST = "latest"
_VERSION = re.compile(r"version-(\d{4,})")
# How often the thread looks whether Spark still lives.
_WATCH_S = 0.5
# Short, so that an interrupt and the display are quick.
_STEP_S = 0.05
# Nobody waits for nodes whose session is gone.
_GONE_GRACE_S = 1.0


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
    given = [count for count in _COUNTS if count in options]
    problems = [f"{count}: the list of nodes says which there are; leave it out" for count in given]
    if data_format not in DATA_FORMATS:
        problems.append(f"data_format={data_format!r}: use one of {', '.join(DATA_FORMATS)}")
    if data is None and "data_dir" in named_placeholders(params):
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
    kind = partial(ScriptRun, path=script, data=data, feed=feed, versions=versions)
    run = make_cluster(run_sent_script, sent, spark=spark, config=config, chief_stays_here=False, kind=kind)
    assert isinstance(run, ScriptRun)
    return run


def script_runs() -> list[ScriptRun]:
    """Return all script runs of this process, oldest first, ended ones included."""
    return [run for run in clusters() if isinstance(run, ScriptRun)]


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


def _plan_nodes(nodes: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """Return options and, by rank, parameters of the nodes of ``[{"job_name": "worker", "params": {"lr": 0.1}}, …]``.

    Raises ConfigError with every problem found, and what is allowed.
    """
    if isinstance(nodes, str | bytes | Mapping) or not isinstance(nodes, Sequence) or not nodes:
        raise ConfigError(
            [f"nodes={nodes!r}: a list with a dict for each node is needed, such as [{{'job_name': 'worker'}}]"]
        )
    if problems := [problem for place, node in enumerate(nodes) for problem in _problems_of(place, node)]:
        raise ConfigError(problems)
    jobs = [str(node.get("job_name", Role.WORKER.value)) for node in nodes]
    # Those given, or those of their order.
    indices = [node.get("task_index", jobs[:place].count(jobs[place])) for place, node in enumerate(nodes)]
    if problems := list(_problems_together(jobs, indices)):
        raise ConfigError(problems)
    leader = next((job for job in jobs if Role(job).leads), None)
    counts = (len(nodes), jobs.count(Role.PS), leader, Role.EVALUATOR in jobs)
    options: dict[str, Any] = dict(zip(_COUNTS, counts, strict=True))
    by_node = dict(zip(zip(jobs, indices, strict=True), nodes, strict=True))
    specs = assign_roles(ClusterConfig(**options))
    return options, tuple(dict(by_node[spec.job_name, spec.task_index].get("params") or {}) for spec in specs)


def _problems_of(place: int, node: Any) -> Iterator[str]:
    """Yield what is wrong with one node taken by itself."""
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


def _problems_together(jobs: Sequence[str], indices: Sequence[int]) -> Iterator[str]:
    """Yield what is wrong with nodes that are right one by one."""
    leaders = [place for place, job in enumerate(jobs) if Role(job).leads]
    yield from _too_many("chief", leaders, "make the others workers")
    evaluators = [place for place, job in enumerate(jobs) if job == Role.EVALUATOR]
    yield from _too_many("evaluator", evaluators, "leave the others out")
    if not any(Role(job).trains for job in jobs):
        yield f"nodes: none of {', '.join(jobs)} trains: add a worker or a chief"
    for job in dict.fromkeys(jobs):
        of_job = [index for name, index in zip(jobs, indices, strict=True) if name == job]
        if sorted(of_job) != list(range(len(of_job))):
            wanted = ", ".join(map(str, range(len(of_job))))
            given = ", ".join(map(str, of_job))
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


def _read_script(
    path: str | os.PathLike[str], *, function: str | None, files: Sequence[str]
) -> tuple[Path, dict[str, bytes]]:
    """Read a script and the modules of its folder that it imports, and those imported by them.

    It has to have ``function``, if one is named; ``files`` are patterns of further files, within the script's folder.
    Raises ConfigError if there is no such file or function, a file cannot be parsed, or all of them are too large.
    """
    script = _existing(path)
    home, code = script.parent, _compiled(script)
    if function is not None:
        _require_function(script, code, function)
    found = {script.name: script.read_bytes()}
    for other in (*_imported(home, code, {script}), *_named(home, files)):
        found[other.relative_to(home).as_posix()] = other.read_bytes()
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


def _compiled(path: Path) -> CodeType:
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line}" if line else ""
        raise ConfigError(
            [f"{path}, line {error.lineno}{shown}: {error.msg}; correct it, nothing was started"]
        ) from None
    except ValueError as error:
        raise ConfigError([f"{path} is no Python file: {error}"]) from None


def _require_function(path: Path, code: CodeType, function: str) -> None:
    if not isinstance(function, str):
        raise ConfigError([f"function={function!r:.60}: the name of a function in {path} is needed"])
    bound = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
    imports_all = any(name.endswith(".*") for name in imported_names(code))
    if function in bound or imports_all:
        return
    functions = [one.co_name for one in code.co_consts if isinstance(one, CodeType) and one.co_name in bound]
    near = nearest(function, functions)
    there = f"it has {', '.join(functions)}" if functions else "it has none; leave function out to run the whole file"
    advice = f"did you mean {near!r}?" if near else there
    raise ConfigError([f"{path} has no function {function!r}; {advice}"])


def _imported(home: Path, code: CodeType, seen: set[Path], package: str = "") -> Iterator[Path]:
    """Yield the files in the script's folder that a module imports, and those that they import."""
    for name in sorted({name.partition(".")[0] for name in imported_names(code, package)} - {""}):
        for path in _files_of(home, name):
            if path in seen:
                continue
            seen.add(path)
            yield path
            if path.suffix == ".py":
                yield from _imported(home, _compiled(path), seen, ".".join(path.relative_to(home).parent.parts))


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


# ---- the run --------------------------------------------------------------------------------------------------------


class ScriptRun(Cluster):
    """One run of a script: the cluster of its nodes. Made by `tfos_lab.run_script`; ``with`` stops it at the end.

    Safe to use from any thread.

    Attributes
    ----------
    path : pathlib.Path
        The script.
    """

    _repr_html_ = None  # type: ignore[assignment]  # it is shown where it was started

    def __init__(
        self, *what: Any, path: Path, data: Any, feed: FeedConfig, versions: Versions | None = None, **how: Any
    ) -> None:
        super().__init__(*what, **how)
        self.path = path
        self._data, self._feed = data, feed
        self._versions = versions
        self._version: Path | None = None
        self._error: BaseException | None = None
        self._follower: threading.Thread | None = None
        self._poll: Callable[[], None] = lambda: None
        self._close: Callable[[], None] = lambda: None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), "path"} - {"start", "watch"})

    def __repr__(self) -> str:
        kept = f", {self._version.name}" if self._version else ""
        up = sum(node.state.is_up for node in self.nodes)
        return f"<ScriptRun {self.name!r}: {self.state}, {up}/{len(self.nodes)} nodes{kept}>"

    @property
    def cluster(self) -> Cluster:
        """Its nodes: the run itself."""
        return self

    @property
    def version(self) -> Path | None:
        """Where its output is kept, once it is done: ``version-0001``, ….

        Once its nodes have ended, this waits until the output is in its place.
        """
        self._settle()
        return self._version

    @property
    def cause(self) -> str:
        """Why it failed or ended early, in one line; "" where it did not."""
        self._settle()
        if isinstance(self._error, ClusterEnded):
            return "it was stopped"
        if isinstance(self._error, NoSession):
            return self._error.reason
        return str(self._error).partition("\n")[0] if self._error is not None else ""

    @property
    def output_dir(self) -> Path:
        """Where the nodes' output is: the kept version, or ``output`` in the run's folder."""
        return self.version or super().output_dir

    def _settle(self) -> None:
        """Wait until the output of nodes that have ended is in its place."""
        if self.ended and self._follower not in (None, threading.current_thread()):
            self._follower.join()

    # ---- wait and stop ----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Results:
        """Wait until the script has run on all nodes, and return what its functions returned.

        Parameters
        ----------
        timeout : float, optional
            Give up waiting after so many seconds; the script goes on.

        Raises
        ------
        NodeFailed
            With the remote traceback of the first node that failed.
        FeedError, ReservationTimeout
            If it could not be fed, or its nodes did not come up.
        NoSession
            If the SparkSession was stopped meanwhile.
        ClusterEnded
            If it was stopped.
        WaitTimeout
            If it still runs after ``timeout``.
        """
        __tracebackhide__ = True
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._follower is not None and self._follower.is_alive():
            self._follower.join(_STEP_S)
            self._poll()
            if deadline is not None and time.monotonic() > deadline:
                running = [view.name for view in self.nodes if not view.state.ended]
                raise WaitTimeout(waited_s=float(timeout or 0), still_running=running)
        self._close()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self.results

    def stop(self, *, grace: float | None = None) -> None:
        """End it: SIGTERM to all nodes, SIGKILL after ``grace`` seconds; nothing happens if it has ended."""
        if not self.ended:
            super().stop(grace=grace)
        self._settle()

    def watch(self, poll: Callable[[], None], close: Callable[[], None]) -> None:
        """Have a display updated while `wait` waits, and closed at its end."""
        self._poll, self._close = poll, close

    # ---- the thread -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the nodes, and follow them on a thread; what cannot be started raises here."""
        try:
            if self._data is not None:
                self.feeding.expect(self._data)
            self.launch()
        except BaseException as error:
            self._error = error
            super().stop(grace=0.0)
            raise
        self._follower = threading.Thread(target=self._follow, name=f"tfos-script-{self.id}", daemon=True)
        self._follower.start()

    def _follow(self) -> None:
        try:
            self.wait_until_running()
            if self._data is not None:
                with self.feeding.required():
                    self.train(self._data, **train_keywords(vars(self._feed)))
            while not self._has_returned():
                self._require_session()
            self._version = self._keep_output()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = self._cause_of(error)
            if not self.ended:
                self.history.add_note(f"stopped: {self.cause}")
                super().stop(grace=_GONE_GRACE_S)

    def _has_returned(self) -> bool:
        """Wait a moment for the functions' end; raises why they have ended without returning."""
        with contextlib.suppress(WaitTimeout):
            super().wait(timeout=_WATCH_S)
            return True
        return False

    def _keep_output(self) -> Path | None:
        output = self.run_dir / "output"
        if self._versions is None or not output.is_dir():
            return None
        try:
            version = self._versions.add(output)
        except OSError as error:
            raise OSError(
                f"{self.name} is done, but {self._versions.folder} could not take its output: {error}"
            ) from error
        self.history.add_note(f"the output is kept as {version}")
        return version

    def _require_session(self) -> None:
        session = self.spark
        # Where a Spark Connect server is lost, the nodes tell whether they have gone with it.
        death = None if session is None or lost_connect_server(session) else spark_session.death_of(session)
        if session is not None and death is not None:
            reason = f"{death} while {self.path.name} ran, and its nodes were stopped with it"
            raise NoSession(reason=reason, advice=spark_session.advice_for(session))

    def _cause_of(self, error: BaseException) -> BaseException:
        """Return the first cause: nodes are lost and feeds fail once the session is gone."""
        try:
            self._require_session()
        except NoSession as gone:
            if error is not gone:
                gone.__cause__ = error
            return gone
        return error


# ---- versions of its output ------------------------------------------------------------------------------------------


class Versions:
    """A folder of versions, of which the ``keep`` newest stay, or all; several processes may add to it.

    Raises ConfigError if the folder cannot be made here, or ``keep`` is no number of versions.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int | None = None) -> None:
        if keep is not None and (not is_int(keep) or keep < 1):
            raise ConfigError([f"keep_versions={keep!r}: a whole number from 1 on is needed, or None to keep all"])
        address = os.fspath(folder)
        if not is_local(address):
            raise ConfigError([f"output_dir={address!r}: versions are kept in a folder of this machine; copy them on"])
        self.folder, self._keep = Path(split_scheme(address)[2]).expanduser().absolute(), keep
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError([f"output_dir={address!r}: it cannot be made ({error.strerror})"]) from None

    def add(self, output: Path) -> Path:
        """Move a folder here as the next version, and remove those that are too old; a link stays in its place.

        Raises OSError if it cannot be moved; what was there is still there.
        """
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            there = {
                int(found[1]): path
                for path in self.folder.iterdir()
                if (found := _VERSION.fullmatch(path.name)) and path.is_dir()
            }
            version = self.folder / f"version-{max(there, default=0) + 1:04d}"
            partial = self.folder / f".{version.name}"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.move(output, partial)
            partial.rename(version)
            with contextlib.suppress(OSError):  # a file system without links
                output.symlink_to(version, target_is_directory=True)
            self._point_at(version)
            for old in sorted(there, reverse=True)[self._keep - 1 :] if self._keep else []:
                shutil.rmtree(there[old], ignore_errors=True)
            return version

    def _point_at(self, version: Path) -> None:
        """Let ``latest`` mean a version; whoever reads it sees the old one or the new one."""
        partial = self.folder / f".{LATEST}"
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
            partial.symlink_to(version.name, target_is_directory=True)
            partial.replace(self.folder / LATEST)
