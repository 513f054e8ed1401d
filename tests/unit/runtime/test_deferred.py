from weakref import ref

from headrace.runtime.deferred import Deferred
from headrace.runtime.expiries import Expiries


def test_a_value_comes_once_whoever_is_first() -> None:
    got: list[int] = []
    early: Deferred[int] = Deferred()
    early.resolve(1)
    early.resolve(2)
    early.then(got.append)
    late: Deferred[int] = Deferred()
    late.then(got.append)
    late.resolve(3)
    late.resolve(4)
    assert got == [1, 3]


def test_hurry_settles_only_what_is_open() -> None:
    calls: list[str] = []
    deferred: Deferred[str] = Deferred(hurry=lambda: calls.append("hurried"))
    deferred.hurry()
    deferred.resolve("x")
    deferred.hurry()
    assert calls == ["hurried"]


def test_expiries_fire_when_due_and_only_once() -> None:
    fired: list[str] = []
    expiries = Expiries()

    def first() -> None:
        fired.append("first")

    def second() -> None:
        fired.append("second")

    expiries.add(100, first)
    expiries.add(200, second)
    expiries.sweep(150)
    expiries.remove(second)
    expiries.sweep(500)
    assert fired == ["first"]
    assert len(expiries) == 0


def test_a_value_is_freed_once_it_is_handed_over() -> None:
    """Also if the callback refers to what holds the deferred, as an answer's slot does."""

    class Held:
        deferred: Deferred["Held"] | None = None

    for is_late in (False, True):
        value, holder = Held(), Held()
        gone = ref(value)
        deferred: Deferred[Held] = Deferred()
        holder.deferred = deferred
        if is_late:
            deferred.then(lambda _, holder=holder: None)  # type: ignore[misc]
        deferred.resolve(value)
        if not is_late:
            deferred.then(lambda _, holder=holder: None)  # type: ignore[misc]
        del value
        assert gone() is None


def test_what_has_waited_is_freed_when_its_deferred_is_resolved() -> None:
    """A fetch holds its answer, which can hurry it."""

    class Waiting:
        def __init__(self) -> None:
            self.answer: Deferred[int] = Deferred(hurry=self.finish)

        def finish(self) -> None:
            self.answer.resolve(1)

    for is_late in (False, True):
        got: list[int] = []
        waiting = Waiting()
        gone, answer = ref(waiting), waiting.answer
        if is_late:
            answer.then(got.append)
        answer.hurry()
        if not is_late:
            answer.then(got.append)
        del waiting, answer
        assert gone() is None
        assert got == [1]
