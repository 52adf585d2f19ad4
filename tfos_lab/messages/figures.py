"""What a node of a large cluster has told of itself lately, in one message: its driver gets one a second of each."""

from __future__ import annotations

from tfos_lab.messages.activity import Activity
from tfos_lab.messages.common import Message
from tfos_lab.messages.feed import RowsTaken
from tfos_lab.messages.lifecycle import Heartbeat, Reported
from tfos_lab.messages.logs import Logs

Figure = Heartbeat | Reported | Activity | RowsTaken | Logs


class Figures(Message, frozen=True):
    """Figures of one node, in the order in which they came; each could be sent by itself."""

    rank: int
    told: list[Figure]


FromAgent = Figures
