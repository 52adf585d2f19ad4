"""Feeds the rows of files: nodes look for the files and count what is not counted, and get equal shares to read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfos_lab.core import messages as m
from tfos_lab.driver.feed.files.shares import deal_files
from tfos_lab.driver.feed.job import FeedJob
from tfos_lab.errors import FeedError, FeedTimeout

if TYPE_CHECKING:
    from tfos_lab.driver.feed.files.source import FileRows
    from tfos_lab.driver.state.driver_feed import DriverFeed

_STEP_S = 0.005


class FileJob(FeedJob):
    """One feed of files to the nodes of one start; it ends when they know what to read."""

    @property
    def _files(self) -> FileRows:
        assert self._request.files is not None
        return self._request.files

    def _message(self) -> m.FeedOpen:
        request = self._request
        return m.FeedOpen(
            feed=-1,
            epochs=request.config.epochs,
            remainder=request.config.remainder,
            schema=self._files.schema,
            token=self._token,
            spool_bytes=request.config.spool_bytes or 0,
            queue=request.queue,
            files=True,
        )

    def _run_job(self, feed: DriverFeed) -> None:
        feed_state, head = self._feed_state, self._head
        asked = self._asked(feed)
        head.request(lambda now_s: feed_state.foresee(feed.number, len(self._files.files), now_s))
        head.request(lambda _now_s: feed_state.search(asked))
        if not self._wait_for_search(feed):
            head.request(lambda now_s: feed_state.cut(feed.number, now_s))
            self._record_early_end(feed)
            return
        if not self._files.is_counted:
            self._files.record(feed.blocks)
        shares, size_bytes = self._shares(feed), self._files.size_bytes
        head.request(lambda now_s: feed_state.deal(shares, size_bytes, now_s))

    def _asked(self, feed: DriverFeed) -> dict[int, m.FilesAsked]:
        """Return which files each node looks at: those that it will read, or those whose records it is to count."""
        files = [found.file for found in self._files.files]
        if self._files.is_counted:
            parts = self._files.deal(len(feed.ranks))
            return {
                rank: m.FilesAsked(
                    feed.number, [part.file for part in some], [part.number for part in some], count_as=""
                )
                for rank, some in zip(feed.ranks, parts, strict=True)
            }
        numbers = deal_files([file.size_bytes for file in files], len(feed.ranks))
        return {
            rank: m.FilesAsked(feed.number, [files[number] for number in some], some, self._files.format)
            for rank, some in zip(feed.ranks, numbers, strict=True)
        }

    def _shares(self, feed: DriverFeed) -> dict[int, m.FilesDealt]:
        files = self._files
        return {
            rank: m.FilesDealt(
                feed=feed.number,
                format=files.format,
                parts=parts,
                rows=sum(rows for part in parts for _, _, rows in part.pieces),
                shapes=files.shapes,
                spool_bytes=self._request.config.spool_bytes or 0,
            )
            for rank, parts in zip(feed.ranks, files.deal(len(feed.ranks)), strict=True)
        }

    def _wait_for_search(self, feed: DriverFeed) -> bool:
        """Wait until all nodes have found their files; return whether rows are still wanted then.

        Raises
        ------
        FeedError
            If a node has not found one, or cannot read it.
        """
        moves, moved_s = self._feed_state.moves, time.monotonic()
        while len(feed.problems) < len(feed.ranks) and not any(feed.problems.values()):
            self._check_cluster()
            if self._is_unwanted():
                return False
            if self._feed_state.moves != moves:
                moves, moved_s = self._feed_state.moves, time.monotonic()
            if time.monotonic() - moved_s > self._timeout_s:
                raise FeedTimeout(
                    reason=f"{', '.join(self._searching(feed))} found no file for {self._timeout_s:g} s: see whether "
                    "the file system answers, or raise feed_timeout (timeout of cluster.train)"
                )
            time.sleep(_STEP_S)
        if problem := next(filter(None, feed.problems.values()), ""):
            raise FeedError(reason=problem)
        return True

    def _searching(self, feed: DriverFeed) -> list[str]:
        return [name for rank, name in feed.names.items() if rank not in feed.problems]
