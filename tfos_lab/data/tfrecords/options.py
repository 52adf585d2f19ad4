"""The options of ``spark.read.format("tfrecord")`` and ``df.write.format("tfrecord")``, checked all at once."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfos_lab.core.paths import hadoop_path, is_local
from tfos_lab.errors import ConfigError

COMPRESSIONS = ("none", "gzip")
MODES = ("error", "append", "overwrite")
SAMPLE = 100_000


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What to read: files, folders or patterns.

    For inference, the bytes of ``binary_features`` are no text, and ``sample`` records are read; 0 for all.
    """

    paths: tuple[str, ...]
    binary_features: tuple[str, ...] = ()
    sample: int = SAMPLE

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check Spark's options."""
        given = _checked(options, ("path", "paths", "binaryFeatures", "sample", "pushFilters"))
        paths = tuple(json.loads(given["paths"])) if "paths" in given else ()
        paths += (given["path"],) if given.get("path") else ()
        problems = [] if paths else ["no path: give one to load(...)"]
        sample = given.get("sample", str(SAMPLE))
        if not sample.isdecimal():
            problems.append(f"sample={sample!r}: use a number of records, or 0 for all of them")
        if problems:
            raise ConfigError(problems)
        return cls(paths=paths, binary_features=_names(given.get("binaryfeatures", "")), sample=int(sample))


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Where and how to write; the values of columns of ``partition_by`` become folders."""

    path: str
    compression: str = "none"
    partition_by: tuple[str, ...] = ()
    mode: str = "append"

    @classmethod
    def of(cls, options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
        """Check Spark's options."""
        given = _checked(options, ("path", "compression", "partitionBy", "mode"))
        compression = given.get("compression", "none").lower()
        mode = "overwrite" if overwrite else given.get("mode", "append")
        problems = [] if given.get("path") else ["no path: give one to save(...)"]
        if compression not in COMPRESSIONS:
            problems.append(f"compression={compression!r}: use one of {', '.join(COMPRESSIONS)}")
        if mode not in MODES:
            problems.append(f"mode={mode!r}: use one of {', '.join(MODES)}")
        if problems:
            raise ConfigError(problems)
        return cls(
            path=given["path"],
            compression=compression,
            partition_by=_names(given.get("partitionby", "")),
            mode=mode,
        )


def with_whole_paths(options: Mapping[str, str], file_system: str) -> dict[str, str]:
    """Return Spark's options with all paths completed by Hadoop's rules; paths on this machine stay unchanged."""
    given = dict(options)
    if is_local(file_system):
        return given
    for name, value in options.items():
        if name.lower() == "path":
            given[name] = hadoop_path(value, file_system, "/")
        elif name.lower() == "paths":
            given[name] = json.dumps([hadoop_path(path, file_system, "/") for path in json.loads(value)])
    return given


def _checked(options: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, str]:
    """Return the options by lower-case names, as Spark ignores case."""
    lower = {name.lower(): name for name in known}
    given = {str(name).lower(): str(value) for name, value in options.items()}
    problems = []
    for name in given:
        if name not in lower:
            near = difflib.get_close_matches(name, lower, n=1)
            hint = f"; did you mean '{lower[near[0]]}'?" if near else f"; there are {', '.join(known)}"
            problems.append(f"the format tfrecord has no option '{name}'{hint}")
    if problems:
        raise ConfigError(problems)
    return given


def _names(text: str) -> tuple[str, ...]:
    """Read names from a JSON list, or separated by commas."""
    if text.lstrip().startswith("["):
        return tuple(json.loads(text))
    return tuple(name.strip() for name in text.split(",") if name.strip())
