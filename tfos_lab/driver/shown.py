"""What the nodes of a run show with `ctx.show`: kept in files of its folder, each of a bounded size and number."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.driver.state.events import ShownView

logger = logging.getLogger(__name__)

_MAX_STEPS = 20
_MAX_FILES = 300
_MAX_NAME = 100

Content = m.Picture | m.Table | m.Matrix | m.Unshown


class ShownFiles:
    """Keeps what is shown in a run's folder; one thread hands it over, and any may ask for the `views`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By name, and the node's rank.
        self._series: dict[tuple[str, int], list[ShownView]] = {}
        self._order: deque[ShownView] = deque()
        self._numbers = itertools.count(1)
        self.views: tuple[ShownView, ...] = ()

    def take(self, message: m.Shown, node: str) -> None:
        """Keep what a node shows, in place of what it has shown for the same name and step."""
        name, content = message.name[:_MAX_NAME], message.content
        suffix = "png" if isinstance(content, m.Picture) else "json"
        file = f"shown/{next(self._numbers):04}.{suffix}"
        data = content.png if isinstance(content, m.Picture) else msgspec.json.encode(content)
        try:
            (self._folder / "shown").mkdir(mode=0o700, exist_ok=True)
            (self._folder / file).write_bytes(data)
        except OSError as error:
            logger.warning("what %s shows as %r cannot be kept: %s", node, name, error)
            return
        view = ShownView(node=node, name=name, step=message.step, time_s=message.time_s, file=file)
        old = self._series.setdefault((name, message.rank), [])
        kept = [one for one in old if view.step is not None and one.step not in (None, view.step)] + [view]
        kept.sort(key=lambda one: one.step or 0)
        if len(kept) > _MAX_STEPS:
            del kept[1:-1:2]
        self._series[name, message.rank] = kept
        self._order.append(view)
        self._remove([one for one in old if one not in kept])
        if len(self._order) > _MAX_FILES:
            first = self._order[0]
            next(series for series in self._series.values() if first in series).remove(first)
            self._remove([first])
        # Names in the order in which they came.
        names = list(dict.fromkeys(name for name, _ in self._series))
        found = sorted(self._series.items(), key=lambda item: (names.index(item[0][0]), item[0][1]))
        self.views = tuple(one for _, series in found for one in series)

    def _remove(self, gone: list[ShownView]) -> None:
        for one in gone:
            if one in self._order:
                self._order.remove(one)
            (self._folder / one.file).unlink(missing_ok=True)


def read_shown(folder: Path, view: ShownView) -> Content | None:
    """Return what was shown; None where its file has gone, or is damaged."""
    path = folder / "shown" / Path(view.file).name  # a record may say anything
    try:
        data = path.read_bytes()
        return m.Picture(data) if path.suffix == ".png" else msgspec.json.decode(data, type=Content)
    except (OSError, msgspec.DecodeError):
        return None
