"""What was fed to a cluster, in a line per feed. Pure: views go in, text comes out."""

from __future__ import annotations

from tfos_lab.driver.state.events import ClusterView, FeedView
from tfos_lab.driver.state.feed_views import feed_name, recent_feeds
from tfos_lab.notebook.display.formats import format_bytes, format_rate
from tfos_lab.notebook.display.throughput import Throughput
from tfos_lab.texts import format_count, format_seconds

# The rows of more nodes than this are shown as a range.
_MAX_SHARES = 8


def feed_progress(feed: FeedView) -> float | None:
    """Return how much of a table has been fed, from 0 to 1, where Spark reports it."""
    if feed.kind != "table":
        return None
    if feed.complete:
        return 1.0
    return min(1.0, feed.partitions / feed.total_partitions) if feed.total_partitions else None


def feed_lines(view: ClusterView, throughput: Throughput | None = None) -> list[str]:
    """Return a line for each feed, stream and inference: short ones for earlier ones, all details for the last.

    ``["feed 1: 1,797 rows in 0.31 s", "feed 2: 900 rows fed · 2/4 partitions · 0.2 MB"]``. If there are very many, one
    line sums up the first ones.
    """
    if not view.feeds:
        return []
    earlier, (*older, last) = recent_feeds(view.feeds)
    sum_line = [f"{len(earlier)} earlier ones: {format_count(sum(map(_rows_of, earlier)), 'row')}"] if earlier else []
    return [*sum_line, *map(_short_feed_line, older), feed_line(last, throughput, alone=len(view.feeds) == 1)]


def feed_line(feed: FeedView, throughput: Throughput | None = None, *, alone: bool = True) -> str:
    """Return what was fed as one line: ``"1,797 rows fed · 4/4 partitions · 0.5 MB in 0.31 s (5,800 rows/s)"``."""
    which = "" if alone and feed.kind == "table" else f"{feed_name(feed)}: "
    parts = [f"{which}{format_count(_rows_of(feed), 'row')} {'answered' if feed.kind == 'inference' else 'fed'}"]
    if feed.kind == "stream":
        parts.append(format_count(feed.micro_batches, "micro-batch", "micro-batches"))
    else:
        parts += [*_spark_text(feed), _partitions_text(feed)]
    if feed.kind != "inference":
        parts += _amounts(feed, throughput)
    if feed.epochs > 1:
        parts.append(f"{feed.epochs} epochs")
    return " · ".join(parts)


def _short_feed_line(feed: FeedView) -> str:
    parts = [format_count(_rows_of(feed), "row")]
    if feed.kind == "stream":
        parts.append(format_count(feed.micro_batches, "micro-batch", "micro-batches"))
    if feed.epochs > 1:
        parts.append(f"{feed.epochs} epochs")
    if feed.kind == "table" and feed.ended_s is not None:
        parts[0] += f" in {format_seconds(feed.ended_s - feed.started_s)}"
    return f"{feed_name(feed)}: {' · '.join(parts)}"


def _rows_of(feed: FeedView) -> int:
    return sum(feed.rows.values())


def _spark_text(feed: FeedView) -> list[str]:
    """Return how far Spark is with what comes before the first row, such as a join."""
    done, of_all = feed.tasks or (0, 0)
    is_before = not feed.partitions and not feed.complete and of_all > (feed.total_partitions or 0)
    return [f"Spark has done {done:,} of {of_all:,} tasks"] if is_before else []


def _partitions_text(feed: FeedView) -> str:
    if feed.total_partitions:
        one = feed.total_partitions == 1
        return f"{feed.partitions:,}/{feed.total_partitions:,} {'partition' if one else 'partitions'}"
    return format_count(feed.partitions, "partition")


def _amounts(feed: FeedView, throughput: Throughput | None) -> list[str]:
    """Return bytes and rates: averages once everything is fed, those of the last seconds until then."""
    seconds = feed.ended_s - feed.started_s if feed.kind == "table" and feed.ended_s is not None else 0.0
    if seconds:
        rates = f"{format_rate(_rows_of(feed) / seconds)} rows/s, {format_bytes(feed.size_bytes / seconds)}/s"
        return [f"{format_bytes(feed.size_bytes)} in {format_seconds(seconds)} ({rates})"]
    parts = [format_bytes(feed.size_bytes)]
    if throughput is not None and not feed.complete and throughput.fed_rows_per_s is not None:
        parts += [
            f"{format_rate(throughput.fed_rows_per_s)} rows/s",
            f"{format_bytes(throughput.fed_bytes_per_s or 0)}/s",
        ]
    return parts


def feed_shares(feed: FeedView) -> str:
    """Return each node's rows, or their range where there are many nodes; equal ones are said once."""
    low, high = min(feed.rows.values(), default=0), max(feed.rows.values(), default=0)
    if len(feed.rows) < 2 or (len(feed.rows) <= _MAX_SHARES and low != high):
        return " · ".join(f"{node} {rows:,}" for node, rows in feed.rows.items())
    each = f"{low:,} rows each" if low == high else f"{low:,} to {high:,} rows"
    return f"{len(feed.rows)} nodes with {each}"
