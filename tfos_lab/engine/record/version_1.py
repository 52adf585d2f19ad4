"""Reads a ``run.json`` of version 1, which the first edition wrote, as one of version 2."""

from __future__ import annotations

from typing import Any

from tfos_lab.core.roles import Role

_Json = dict[str, Any]

_OF_VIEW = ("name", "launcher", "started_s", "ended_s", "reason", "notes", "timings", "restarts", "verdict", "progress",
            "of_runs", "search")  # fmt: skip


def of_version_2(old: _Json) -> _Json:
    """Return what a file of version 2 would hold.

    Version 1 listed the fields of the view beside the others, had no type of its own for a role, and counted the times
    of metrics from the start.
    """
    view = {name: old[name] for name in _OF_VIEW if name in old}
    counts: dict[str, int] = {}
    feeds = [{**feed, "number": _count(counts, feed["kind"])} for feed in old.get("feeds", ())]
    view |= {
        "cluster_id": old["id"],
        "state": old.get("outcome") or old["state"],
        "ended_s": old.get("ended_s"),
        "timings": old.get("timings", {}),
        "nodes": [_node(node) for node in old.get("nodes", ())],
        "feeds": feeds,
    }
    metrics = [
        {**one, "time_s": old["started_s"] + one["time_s"], "total_steps": None} for one in old.get("metrics", ())
    ]
    return {**old, "version": 2, "view": view, "metrics": metrics}


def _count(counts: dict[str, int], kind: str) -> int:
    counts[kind] = counts.get(kind, -1) + 1
    return counts[kind]


def _node(old: _Json) -> _Json:
    role, _, index = old["node"].partition(":")
    part = old.get("part")
    return {
        **old,
        "job_name": "run" if part else role,
        "task_index": part["number"] if part else int(index) if index.isdecimal() else 0,
        "is_chief": any(one.leads and one == role for one in Role),
        "run": part,
    }
