"""`ScriptRun`: a script on its nodes, as its user holds it; a thread follows it to its end, and keeps its output.

The kept output of runs is in one folder: ``version-0001``, ``version-0002``, … and ``latest``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tfos_lab.core.config import FeedConfig, train_keywords
from tfos_lab.core.options import is_int
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.core.states import RunState
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.results import Results
from tfos_lab.errors import ClusterEnded, ConfigError, NoSession, WaitTimeout
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.session import lost_connect_server

if TYPE_CHECKING:
    from tfos_lab.driver.state.events import ClusterView

# How often the thread looks whether Spark still lives.
_WATCH_S = 0.5
# Short, so that an interrupt and the display are quick.
_STEP_S = 0.05
# Nobody waits for nodes whose session is gone.
_GONE_GRACE_S = 1.0


class ScriptRun:
    """One run of a script. Made by `tfos_lab.run_script`; usable with ``with``, which stops it at the end.

    Safe to use from any thread.

    Attributes
    ----------
    cluster : Cluster
        Its nodes: logs, metrics, results, the run's folder.
    path : pathlib.Path
        The script.
    version : pathlib.Path or None
        Where its output is kept, once it is done: ``version-0001``, ….
    """

    def __init__(
        self, cluster: Cluster, path: Path, *, data: Any, feed: FeedConfig, versions: Versions | None = None
    ) -> None:
        self.cluster = cluster
        self.path = path
        self.version: Path | None = None
        self._data, self._feed = data, feed
        self._versions = versions
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._poll: Callable[[], None] = lambda: None
        self._close: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        view = self.view()
        up = sum(node.state.is_up for node in view.nodes)
        kept = f", {self.version.name}" if self.version else ""
        return f"<ScriptRun {self.name!r}: {self.state}, {up}/{len(view.nodes)} nodes{kept}>"

    def _repr_html_(self) -> str:
        return self.cluster._repr_html_()

    # ---- what it is -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The label of the run."""
        return self.cluster.name

    @property
    def state(self) -> RunState:
        """The state of its cluster, such as ``"running"``, ``"done"``, ``"failed"`` or ``"stopped"``."""
        return self.cluster.state

    @property
    def ended(self) -> bool:
        """Whether all is over: the nodes have ended, and the output is in its place."""
        return self._over.is_set()

    @property
    def cause(self) -> str:
        """Why it failed or ended early, in one line; "" where it did not."""
        if isinstance(self._error, ClusterEnded):
            return "it was stopped"
        if isinstance(self._error, NoSession):
            return self._error.reason
        return str(self._error).partition("\n")[0] if self._error is not None else ""

    @property
    def results(self) -> Results:
        """What the nodes' functions have returned so far: ``results["worker:0"]``; None for a whole script."""
        return self.cluster.results

    @property
    def run_dir(self) -> Path:
        """The run's folder on this machine: logs, ``run.json`` and ``output``."""
        return self.cluster.run_dir

    @property
    def output_dir(self) -> Path:
        """Where the nodes' output is: the kept version, or ``output`` in the run's folder."""
        return self.version or self.run_dir / "output"

    def view(self) -> ClusterView:
        """Return all that can be seen of its nodes now, as one value."""
        return self.cluster.view()

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a node has written, or all nodes; see `Cluster.logs`."""
        return self.cluster.logs(node, tail)

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
        while not self._over.wait(_STEP_S):
            self._poll()
            if deadline is not None and time.monotonic() > deadline:
                running = [view.name for view in self.cluster.nodes if not view.state.ended]
                raise WaitTimeout(waited_s=float(timeout or 0), still_running=running)
        self._close()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self.results

    def stop(self, *, grace: float | None = None) -> None:
        """End it: SIGTERM to all nodes, SIGKILL after ``grace`` seconds; nothing happens if it has ended."""
        if not self.cluster.ended:
            self.cluster.stop(grace=grace)
        self._over.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def watch(self, poll: Callable[[], None], close: Callable[[], None]) -> None:
        """Have a display updated while `wait` waits, and closed at its end."""
        self._poll, self._close = poll, close

    # ---- the thread -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the nodes, and follow them on a thread; what cannot be started raises here."""
        try:
            if self._data is not None:
                self.cluster.feeding.expect(self._data)
            self.cluster.launch()
        except BaseException as error:
            self._error = error
            self._over.set()
            self.cluster.stop(grace=0.0)
            raise
        threading.Thread(target=self._follow, name=f"tfos-script-{self.cluster.id}", daemon=True).start()

    def _follow(self) -> None:
        try:
            self.cluster.wait_until_running()
            if self._data is not None:
                with self.cluster.feeding.required():
                    self.cluster.train(self._data, **train_keywords(vars(self._feed)))
            while not self._has_returned():
                self._require_session()
            self.version = self._keep_output()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = self._cause_of(error)
            if not self.cluster.ended:
                self.cluster.history.add_note(f"stopped: {self.cause}")
                self.cluster.stop(grace=_GONE_GRACE_S)
        finally:
            self._over.set()

    def _has_returned(self) -> bool:
        """Wait a moment for the functions' end; raises why they have ended without returning."""
        with contextlib.suppress(WaitTimeout):
            self.cluster.wait(timeout=_WATCH_S)
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
        self.cluster.history.add_note(f"the output is kept as {version}")
        return version

    def _require_session(self) -> None:
        session = self.cluster.spark
        # Where a Spark Connect server is lost, its nodes may live on: they report their own ends.
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


LATEST = "latest"
_NAME = re.compile(r"version-(\d{4,})")


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
                if (found := _NAME.fullmatch(path.name)) and path.is_dir()
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
        """Let ``latest`` point at a version, atomically."""
        partial = self.folder / f".{LATEST}"
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
            partial.symlink_to(version.name, target_is_directory=True)
            partial.replace(self.folder / LATEST)
