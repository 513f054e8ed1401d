import gc
import weakref

from headrace.coordinator.timers import Timers


class Coordinated:
    """What a timer may be for."""


def test_a_cancelled_timer_does_not_hold_its_key_until_its_deadline() -> None:
    timers, key = Timers(), Coordinated()
    held = weakref.ref(key)
    timers.set("first", 1, lambda: None)
    timers.set(key, 1e9, lambda: None)
    timers.set(key, 2e9, lambda: None)
    timers.cancel(key)
    del key
    gc.collect()
    assert held() is None
    assert timers.next_deadline_ms() == 1


def test_a_timer_fires_at_its_last_deadline_only() -> None:
    timers = Timers()
    fired: list[str] = []
    timers.set("a", 1, lambda: fired.append("early"))
    timers.set("b", 2, lambda: fired.append("b"))
    timers.set("a", 3, lambda: fired.append("late"))
    assert timers.fire_due(2) == 1
    assert fired == ["b"]
    assert timers.next_deadline_ms() == 3
    timers.fire_due(3)
    assert fired == ["b", "late"]
    assert timers.next_deadline_ms() is None
