"""The context of an action, and the registry of actions: each registers itself under its name.

An action gets its request as a class of its own, whichever protocol it came by, and returns its result, or None where
the action has no result.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from headrace.model.acls import AclOperation
from headrace.model.errors import UnknownQueue
from headrace.queues.api import QueueInfo, Queues
from headrace.sqs import errors
from headrace.sqs.access import Caller, QueueAccess, QueueAccessRequest
from headrace.sqs.audit import SqsAudit
from headrace.sqs.deletions import RecentDeletions

_MOST_ID_LENGTH = 128

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Realm:
    """The account, region and services that all requests share."""

    queues: Queues
    account: str
    region: str
    deletions: RecentDeletions
    wall_ms: Callable[[], int]
    access: QueueAccess
    audit: SqsAudit

    def arn(self, queue: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.account}:{queue}"


class RequestOrigin(Protocol):
    """The HTTP request that a call came by. What it says of itself is read only if it is asked for."""

    @property
    def base_url(self) -> str:
        """The address that the client used: URLs in answers begin with it."""
        ...

    @property
    def trace(self) -> str:
        """The request's `X-Amzn-Trace-Id`; empty if it has none."""
        ...

    def caller(self) -> Caller:
        """The sender as access control sees it."""
        ...

    def unless_gone(self, what: Awaitable[Any], call: "SqsRequest") -> Awaitable[Any]:
        """Awaits a result while the client is connected; None if the broker stops, or if the call is not permitted any
        more."""
        ...


class SqsRequest:
    """The context of one request: its sender, and the HTTP request that it came by."""

    __slots__ = ("_checked", "origin", "realm", "sender")

    def __init__(self, realm: Realm, sender: str, origin: RequestOrigin) -> None:
        """`sender` is the user that the request is signed by, or the account. `origin` does not refer to this object:
        a cycle for each request would be left to the garbage collector."""
        self.realm = realm
        self.sender = sender
        self.origin = origin
        self._checked: tuple[str, tuple[QueueNeed, ...], Any] | None = None
        """The arguments of the last `check`."""

    @property
    def queues(self) -> Queues:
        return self.realm.queues

    def caller(self) -> Caller:
        return self.origin.caller()

    def unless_gone(self, what: Awaitable[Any]) -> Awaitable[Any]:
        """Awaits a result while the client is connected and may have it."""
        return self.origin.unless_gone(what, self)

    def url(self, queue: str) -> str:
        return f"{self.origin.base_url}/{self.realm.account}/{queue}"

    def name(self, queue_url: str | None) -> str:
        """The queue name in a URL with any host; a bare name is accepted, as by AWS."""
        if queue_url is None:
            raise errors.missing_parameter("QueueUrl")
        name = self.name_in(queue_url, self.realm.account)
        if not name:
            raise errors.queue_does_not_exist()
        return name

    @staticmethod
    @lru_cache(maxsize=1024)
    def name_in(queue_url: str, account: str) -> str:
        """The queue name in a URL; empty if it is not the URL of a queue of this account."""
        path = queue_url
        if "/" in queue_url:
            try:
                path = urlsplit(queue_url).path.strip("/")
            except ValueError:
                return ""
        owner, _, name = path.rpartition("/")
        return name if owner in ("", account) else ""

    def find(self, queue_url: str | None) -> QueueInfo:
        try:
            return self.queues.find(self.name(queue_url))
        except UnknownQueue as error:
            raise errors.queue_does_not_exist(error) from None

    def check(self, action: str, needs: "tuple[QueueNeed, ...]", request: Any) -> None:
        """AccessDenied unless the client has all permissions that an action needs for this request."""
        self._checked = (action, needs, request)
        caller = self.caller()
        for need in needs:
            for name in need.queues(self, request):
                try:
                    info = self.queues.find(name)
                except UnknownQueue:
                    info = None
                allowed_by = need.actions or (action,)
                wanted = QueueAccessRequest(action, need.operation, allowed_by, name, info, need.is_named)
                self.realm.access.check(caller, wanted)

    def is_permitted(self) -> bool:
        """Whether the permissions that were checked are still there."""
        try:
            if self._checked is not None:
                self.check(*self._checked)
        except errors.SqsError:
            return False
        return True

    def sees(self, info: QueueInfo) -> bool:
        """Whether a list may show the queue to the client."""
        return not self.realm.access.is_enforced or self.realm.access.sees(self.caller(), info)


class ActionWork(Generic[T]):
    """The work of an action whose result follows from that of one operation on a queue. It is awaited; or, if the
    operation is a `PendingResult`, finished in a callback of it."""

    __slots__ = ("begun", "finish")

    def __init__(self, begun: Awaitable[T], finish: Callable[[T], msgspec.Struct | None]) -> None:
        self.begun = begun
        self.finish = finish

    def __await__(self) -> Generator[Any, None, msgspec.Struct | None]:
        return self.finish((yield from self.begun.__await__()))


Action = Callable[[SqsRequest, Any], Awaitable[msgspec.Struct | None]]


@dataclass(frozen=True, slots=True)
class QueueNeed:
    """A permission that an action needs on each of the queues that its request names."""

    operation: AclOperation
    queues: Callable[[SqsRequest, Any], Iterable[str]]
    """The names of these queues. It may raise `SqsError` for a request that names none properly."""
    about: str
    """Which queues they are, for the documentation."""
    actions: tuple[str, ...] = ()
    """The actions that the policy of such a queue must allow; empty: the action itself."""
    is_named: bool = True
    """False if the request does not name the queues itself: an error must not name them, either."""

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.about}"


@dataclass(frozen=True, slots=True)
class RegisteredAction:
    name: str
    request: type[msgspec.Struct]
    run: Action
    decode: Callable[[bytes], Any]
    needs: tuple[QueueNeed, ...]
    """The permissions that are checked before it runs."""


ACTIONS: dict[str, RegisteredAction] = {}


def action(
    request: type[R],
    *,
    needs: tuple[QueueNeed, ...],
) -> Callable[[Callable[[SqsRequest, R], Awaitable[msgspec.Struct | None]]], Callable[[SqsRequest, R], Any]]:
    """Register the decorated function as the action named by its request's class, `CreateQueueRequest` as
    CreateQueue. `needs` are the permissions that are checked before it runs."""
    name = request.__name__.removesuffix("Request")

    def register(run: Callable[[SqsRequest, R], Awaitable[msgspec.Struct | None]]) -> Callable[[SqsRequest, R], Any]:
        ACTIONS[name] = RegisteredAction(name, request, run, msgspec.json.Decoder(request).decode, needs)
        return run

    return register


def required(value: T | None, parameter: str) -> T:
    if value is None or value == "":
        raise errors.missing_parameter(parameter)
    return value


def within(value: int | None, low: int, high: int, parameter: str, *, default: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        raise errors.invalid_value(value, parameter, f"Must be between {low} and {high}, if provided.")
    return value


def within_bounds(value: int | None, high: int, parameter: str) -> None:
    """Like `within` from 0 on, with the message that AWS has for times."""
    if value is not None and not 0 <= value <= high:
        raise errors.invalid_value(value, parameter, f"Must be >= 0 and <= {high}, if provided.")


def is_plain_id(text: str) -> bool:
    """Whether a text can be the id of a group, of a message or of an attempt: 1 to 128 letters, digits and
    punctuation characters of ASCII."""
    return 0 < len(text) <= _MOST_ID_LENGTH and text.isascii() and text.isprintable() and " " not in text


def invalid_id(text: str, parameter: str) -> errors.SqsError:
    return errors.invalid_value(
        text,
        parameter,
        f"{parameter} can only include alphanumeric and punctuation characters. 1 to {_MOST_ID_LENGTH} in length.",
    )
