"""What each trial gets: its arguments, its cluster's size, and rows."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig, FeedConfig, train_keywords
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.options import is_int
from tfos_lab.data.prepare import prepare
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.feed.arrays import frame_of_arrays, is_in_memory
from tfos_lab.driver.feed.request import is_dstream
from tfos_lab.driver.search.space import Params, Space
from tfos_lab.errors import ConfigError, NoSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A number of nodes, the name of a parameter, or a function of the parameters.
ClusterSize = int | str | Callable[[Params], int]


# ---- arguments ------------------------------------------------------------------------------------------------------


def check_args(args: Any) -> None:
    """Refuse fixed arguments that parameters cannot be added to."""
    if args is not None and not isinstance(args, Mapping) and not hasattr(args, "__dict__"):
        problem = f"args={args!r}: a dict, or an argparse.Namespace, is needed; each trial's parameters are added to it"
        raise ConfigError([problem])


def merge_args(args: Any, params: Params) -> Any:
    """Return a trial's arguments: the fixed ones and its parameters, in a copy."""
    if args is None or isinstance(args, Mapping):
        return {**(args or {}), **params}
    merged = copy.copy(args)
    vars(merged).update(params)
    return merged


# ---- size -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """How large the cluster of a trial is.

    Attributes
    ----------
    wanted : int, str or callable
        What the user has asked for.
    config : ClusterConfig
        What each cluster is asked for, whatever its size.
    launcher : LauncherTraits
        Who starts the nodes.
    """

    wanted: ClusterSize
    config: ClusterConfig
    launcher: LauncherTraits

    def check(self, space: Space) -> None:
        """Refuse what is no size, and the name of no parameter."""
        if isinstance(self.wanted, str):
            if not all(self.wanted in part for part in space.parts):
                there = ", ".join(space.names)
                raise ConfigError([f"cluster_size={self.wanted!r}: no parameter of that name; there are {there}"])
        elif not callable(self.wanted):
            self.config_for({})

    def config_for(self, params: Params) -> ClusterConfig:
        """Return the configuration of a trial's cluster.

        Raises
        ------
        ConfigError
            If its size is no whole number, or too small for the roles that were asked for.
        """
        size = self._size_for(params)
        if not is_int(size) or size < 1:
            raise ConfigError([f"cluster_size={size!r}{self._whose(params)}: a whole number from 1 on is needed"])
        return dataclasses.replace(self.config, cluster_size=size)

    def slots_for(self, params: Params) -> int:
        """Return how many slots a trial takes."""
        if self.launcher.runs_inline:
            return 1
        config = self.config_for(params)
        return int(config.cluster_size - config.driver_ps * config.num_ps)

    def _size_for(self, params: Params) -> Any:
        if isinstance(self.wanted, str):
            return params[self.wanted]
        if not callable(self.wanted):
            return self.wanted
        try:
            return self.wanted(params)
        except Exception as error:
            problem = f"cluster_size: your function raised {type(error).__name__}: {error}{self._whose(params)}"
            raise ConfigError([problem]) from error

    def _whose(self, params: Params) -> str:
        return f" for {params}" if params else ""


# ---- rows -----------------------------------------------------------------------------------------------------------


def make_feed(data: Any, session: SparkSession | None, config: FeedConfig) -> Callable[[Cluster], object] | None:
    """Return what feeds a trial's nodes, or None without rows.

    Parameters
    ----------
    data : object
        What `Cluster.train` takes; arrays become a DataFrame once, for all trials.
    session : SparkSession or None
        The session.
    config : FeedConfig
        How they are fed.

    Raises
    ------
    ConfigError, NoSession
        For what cannot be fed.
    """
    if data is None:
        return None
    if getattr(data, "isStreaming", False) or is_dstream(data):
        raise ConfigError(["data is a stream, which can be read once only: trials need rows that they can all read"])
    if is_in_memory(data):
        if session is None:
            reason = f"data is of type {type(data).__name__}, but there is no SparkSession to read it with"
            raise NoSession(reason=reason, for_rows=True)
        data = frame_of_arrays(session, data)
    if hasattr(data, "mapInArrow") and not config.objects:
        prepare(data, config.columns)
    return lambda cluster: cluster.train(data, **train_keywords(vars(config)))
