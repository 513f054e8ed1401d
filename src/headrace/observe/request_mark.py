"""Which request a log line belongs to, at no cost for requests that log nothing.

Two places hold the request that is being handled, and only a log line reads them:

- a slot for each thread, for requests that are handled without a task: storing a reference is all that a request pays;
- a context variable, for requests that are handled in a task of their own. It holds a mark that is cleared when the
  request ends, so that background work which such a task started does not carry the id of an old request.
"""

import threading
from contextvars import ContextVar
from typing import Protocol


class LoggedRequest(Protocol):
    """A request, as log lines name it."""

    @property
    def request_id(self) -> str: ...

    @property
    def client(self) -> str:
        """The client that sent it: its name, if it has one, and its address."""


class RequestMark:
    """Holds the request that is being handled; None between requests."""

    __slots__ = ("request",)

    def __init__(self, request: LoggedRequest | None = None) -> None:
        self.request = request


class _Thread(threading.local):
    def __init__(self) -> None:
        self.mark = RequestMark()


_thread = _Thread()
_task: ContextVar[RequestMark | None] = ContextVar("headrace_request", default=None)


def thread_mark() -> RequestMark:
    """The mark of this thread. Set `request` while a request is handled without a task, and clear it afterwards."""
    return _thread.mark


def mark_task(request: LoggedRequest) -> RequestMark:
    """Mark the current task, and tasks that it starts, as working on a request until `request` is set to None."""
    mark = RequestMark(request)
    _task.set(mark)
    return mark


def current_request() -> LoggedRequest | None:
    """The request that this thread or task is working on."""
    request = _thread.mark.request
    if request is None and (mark := _task.get()) is not None:
        request = mark.request
    return request
