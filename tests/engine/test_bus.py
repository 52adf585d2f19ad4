"""The bus: bounded, in order, never blocking, and it counts what it dropped."""

from __future__ import annotations

import threading

from tfos_lab.engine.bus import Bus
from tfos_lab.engine.state.events import Event, LogText


def events(*numbers):
    return [Event(time_s=float(number)) for number in numbers]


def publish(bus, *numbers):
    for event in events(*numbers):
        bus.publish(event)


def test_every_subscriber_gets_every_event_in_order():
    bus = Bus()
    with bus.subscribe() as first, bus.subscribe() as second:
        publish(bus, 1, 2, 3)
        assert first.take() == second.take() == events(1, 2, 3)
        assert first.take() == []


def test_a_subscriber_gets_no_event_from_before_it_subscribed_or_after_it_closed():
    bus = Bus()
    publish(bus, 1)
    subscription = bus.subscribe()
    publish(bus, 2)
    subscription.close()
    subscription.close()
    publish(bus, 3)
    assert subscription.closed
    assert subscription.take() == events(2)


def test_a_slow_subscriber_loses_its_oldest_events_and_can_ask_how_many():
    bus = Bus()
    with bus.subscribe(capacity=3) as slow, bus.subscribe() as quick:
        publish(bus, 1, 2, 3, 4, 5)
        assert slow.take_dropped() == 2
        assert slow.take_dropped() == 0
        assert slow.take() == events(3, 4, 5)
        assert quick.take_dropped() == 0
        assert len(quick.take()) == 5


def test_a_subscriber_may_take_a_few_events_at_a_time():
    bus = Bus()
    with bus.subscribe() as subscription:
        publish(bus, 1, 2, 3)
        assert subscription.take(at_most=2) == events(1, 2)
        assert subscription.take(at_most=2) == events(3)


def test_the_tap_gets_each_event_before_any_subscriber():
    seen = []
    bus = Bus(lambda event: seen.append((event, subscription.take())))
    subscription = bus.subscribe()
    publish(bus, 1)
    assert seen == [(events(1)[0], [])]
    assert subscription.take() == events(1)


def test_taking_waits_for_the_first_event():
    bus = Bus()
    taken = []
    with bus.subscribe() as subscription:
        thread = threading.Thread(target=lambda: taken.append(subscription.take(timeout_s=60.0)))
        thread.start()
        publish(bus, 1)
        thread.join(60)
    assert taken == [events(1)]


def test_closing_the_bus_wakes_waiting_subscribers_and_leaves_their_events():
    bus = Bus()
    full, waiting = bus.subscribe(), bus.subscribe()
    publish(bus, 1)
    waiting.take()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(waiting.take(timeout_s=30.0)))
    thread.start()
    bus.close()
    thread.join(60)
    assert taken == [[]]
    assert full.closed
    assert full.take(timeout_s=30.0) == events(1)
    assert full.take(timeout_s=30.0) == []


def test_waiting_text_is_bounded_in_size():
    bus = Bus()
    with bus.subscribe() as slow:
        for number in range(40):
            bus.publish(LogText(time_s=float(number), node="chief:0", stream="stdout", text="x" * 1_000_000))
        assert slow.take_dropped() == 24
        assert [event.time_s for event in slow.take()] == [float(number) for number in range(24, 40)]
        publish(bus, 1)
        assert slow.take_dropped() == 0


def test_events_that_are_published_together_reach_the_tap_together_and_subscribers_one_by_one():
    tapped = []
    bus = Bus(lambda *together: tapped.append(list(together)))
    with bus.subscribe(capacity=2) as subscription:
        bus.publish(*events(1, 2, 3))
        bus.publish()
        assert tapped == [events(1, 2, 3)]
        assert subscription.take() == events(2, 3)
        assert subscription.take_dropped() == 1
