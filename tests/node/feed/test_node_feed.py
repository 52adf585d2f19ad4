"""What a node knows of one feed."""

from __future__ import annotations

from tfos_lab.node.feed.node_feed import NodeFeed


class CountedSegment:
    """A segment of three rows that counts how often it is asked for them."""

    def __init__(self):
        self.asked = 0

    @property
    def rows(self):
        self.asked += 1
        return 3


def test_the_rows_of_a_segment_are_added_once_however_often_their_sum_is_asked_for():
    feed = NodeFeed(number=0, epochs=1, remainder="exact", specs=())
    assert feed.rows_come == 0
    for count in range(1, 50):
        feed.segments.append(CountedSegment())
        assert feed.rows_come == feed.rows_come == 3 * count
    assert {segment.asked for segment in feed.segments} == {1}
