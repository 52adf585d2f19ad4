"""The launchers that there are, and what each of them can do.

A launcher starts the nodes of a cluster somewhere. The rest of the package never compares names of launchers: it asks
for these traits. To add one, write a class derived from `tfos_lab.launchers.base.Launcher` in a module of its
own, and add an entry here.
"""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
#: What nodes on this machine give as their executor: they have none.
THIS_MACHINE = "this machine"


@dataclass(frozen=True, kw_only=True)
class LauncherTraits:
    """What the driver and the notebook have to know of a launcher before they use it."""

    # As in `ClusterView.launcher`.
    name: str
    # The value of the option ``local`` that asks for it.
    option: str
    # Its class, as ``"module:class"``; imported when it is first used, and called with the head of the nodes.
    factory: str
    # Where its nodes run, in words.
    place: str
    # It cannot do without a SparkSession.
    needs_session: bool = False
    # The function runs in this process, on the thread that waits for it, which is the only node, whatever is asked for.
    # Nothing is pickled, no TensorBoard is started, and the cluster can neither be restarted nor answer rows.
    runs_inline: bool = False
    # Nodes may be on other hosts: the driver listens on an address that they can reach, and rows are encrypted.
    spans_hosts: bool = False
    # Nodes share this machine, so their number is checked against its cores and memory.
    checks_capacity: bool = False


_ON_THIS_MACHINE = LauncherTraits(
    name="local",
    option="processes",
    factory="tfos_lab.launchers.local:LocalLauncher",
    place=THIS_MACHINE,
    checks_capacity=True,
)
_INLINE = LauncherTraits(
    name="inline",
    option="inline",
    factory="tfos_lab.launchers.inline:InlineLauncher",
    place="this process",
    runs_inline=True,
)
_ON_SPARK = LauncherTraits(
    name="spark",
    option="off",
    factory="tfos_lab.launchers.spark.launcher:SparkLauncher",
    place="Spark's executors",
    needs_session=True,
    spans_hosts=True,
)

# By name, in the order in which messages list their options.
LAUNCHERS = {traits.name: traits for traits in (_ON_THIS_MACHINE, _INLINE, _ON_SPARK)}


def launcher_for(local: str) -> LauncherTraits | None:
    """Return the launcher that a value of ``local`` asks for, or None for ``"auto"``."""
    return next((traits for traits in LAUNCHERS.values() if traits.option == local), None)
