"""Describes and logs failures of a user's function: the first in full, repeated ones as a count."""

import logging
import sysconfig
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.model.failure_headers import Failure, reason_with

_MAX_CHARS = 2000
_MAX_KINDS = 1_000
_WINDOW_S = 60.0
_LINES = 10
"""So many failures of a kind have a line each within a window; the others are counted."""

_LIBRARIES = tuple(
    {sysconfig.get_path(each) + "/" for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {f"{Path(__file__).parents[1]}/", "<frozen "}
)


def failure_of(error: BaseException) -> Failure:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    file, line = ([("", 0)] + (_own(frames := _frames(error)) or frames))[-1]
    return Failure(name, _text(error)[:_MAX_CHARS], file[-_MAX_CHARS:], line)


def _text(error: BaseException) -> str:
    """Its message; a name of a file that is not UTF-8 has characters that cannot be sent."""
    return str(error).encode(errors="backslashreplace").decode()


def _frames(error: BaseException) -> list[tuple[str, int]]:
    return [(each.f_code.co_filename, line) for each, line in traceback.walk_tb(error.__traceback__)]


def _own(frames: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those in the user's own code."""
    return [each for each in frames if not each[0].startswith(_LIBRARIES)]


def describe(error: BaseException) -> str:
    """The reason of a failure in one line."""
    text = " ".join(_text(error).split())
    return f"{type(error).__name__}: {text}"[:_MAX_CHARS] if text else type(error).__name__


def describe_with_place(error: BaseException) -> str:
    """The reason of a failure and where in the user's code it was raised, if it was there, in one line."""
    is_own = bool(_own(_frames(error)))
    return f"{describe(error)} ({failure_of(error).place})" if is_own else describe(error)


def reason_for_broker(error: BaseException) -> str:
    """The reason with which a message is returned to its queue. It carries the failure in fields, which become
    headers if the message is dead-lettered."""
    return reason_with(describe_with_place(error), failure_of(error))


@dataclass(slots=True)
class _Kind:
    """Failures of one type at one place that ended in the same way."""

    since_s: float
    lines: int = 0
    counted: int = 0


@dataclass
class FailureLog:
    """Not thread-safe: its owner has a lock. A kind of failure is the type of the exception, the place and `outcome`.

    In each minute the first failure of a kind is logged with its traceback, the next nine with a line each, and the
    others are counted in one line at the end of the minute.
    """

    log: logging.Logger
    name: str
    """Who fails, as the log calls it."""
    now_s: Callable[[], float] = time.monotonic
    _kinds: dict[tuple[Failure, str], _Kind] = field(default_factory=dict)

    def failed(self, error: BaseException, what: str, outcome: str, *, is_expected: bool = False) -> None:
        """A failure: `what` failed, `outcome` is the kind of its consequence. An exception that a user raises to say
        what is to be done (`is_expected`) has no traceback."""
        self.tick()
        failure = failure_of(error)._replace(message="")
        known = (failure, outcome) in self._kinds
        if not known and len(self._kinds) >= _MAX_KINDS:
            self.end()
        kind = self._kinds.setdefault((failure, outcome), _Kind(self.now_s()))
        if kind.lines >= _LINES:
            kind.counted += 1
            return
        kind.lines += 1
        has_traceback = kind.lines == 1 and not is_expected and not self._is_known_elsewhere(failure, outcome)
        self.log.warning(
            "%s: %s: %s", self.name, what, describe_with_place(error), exc_info=error if has_traceback else None
        )

    def _is_known_elsewhere(self, failure: Failure, outcome: str) -> bool:
        return any(each == failure and other != outcome for each, other in self._kinds)

    def tick(self) -> None:
        """To be called now and then: tells of what was counted in minutes that are over."""
        now_s = self.now_s()
        for key in [key for key, kind in self._kinds.items() if now_s - kind.since_s >= _WINDOW_S]:
            self._tell(key, self._kinds.pop(key))

    def end(self) -> None:
        """Tell of everything that was counted."""
        for key, kind in self._kinds.items():
            self._tell(key, kind)
        self._kinds.clear()

    def _tell(self, key: tuple[Failure, str], kind: _Kind) -> None:
        if kind.counted:
            (failure, outcome), seconds = key, round(self.now_s() - kind.since_s)
            within = "the last minute" if seconds >= _WINDOW_S else f"{seconds} seconds"
            self.log.warning(
                "%s: failed %d more times in %s (%s): %s at %s",
                self.name,
                kind.counted,
                within,
                outcome,
                failure.type,
                failure.place,
            )
