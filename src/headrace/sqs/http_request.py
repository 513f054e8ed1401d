"""One request of queues over HTTP: its sender, what it asks for by which protocol, and its answer."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headrace.config.address import is_loopback
from headrace.coordinator.completion import PendingResult
from headrace.coordinator.result import Result
from headrace.model.errors import HeadraceError
from headrace.model.sigv4 import query_pairs
from headrace.model.unique_ids import new_id
from headrace.model.users import ANONYMOUS, principal_of
from headrace.quotas.queue_rates import QueueRates
from headrace.security import basic_login
from headrace.security.subject import NOT_AUTHENTICATED, Subject
from headrace.sqs import auth, errors, extended, query_answers, wire_json, wire_query
from headrace.sqs.access import Caller
from headrace.sqs.bodies import ClientDisconnected, Receive
from headrace.sqs.calls import ActionWork, RegisteredAction, SqsRequest
from headrace.sqs.errors import SqsError

if TYPE_CHECKING:
    from headrace.sqs.endpoint import SqsEndpoint

log = logging.getLogger(__name__)

_UNKNOWN_ACTION = "unknown"
_SEND, _SEND_BATCH = "SendMessage", "SendMessageBatch"

Scope = MutableMapping[str, Any]
Answer = tuple[int, bytes, bytes, list[tuple[bytes, bytes]]]
"""Status, content type, body and further headers."""


class WholeExchange(Protocol):
    """A request over HTTP that has arrived in whole, and its response."""

    scope: Scope
    on_disconnect: Callable[[], None] | None

    async def receive(self) -> MutableMapping[str, Any]: ...

    async def send(self, event: MutableMapping[str, Any]) -> None: ...

    def take_body(self) -> bytes: ...

    def respond(self, status: int, lines: bytes, body: bytes) -> None: ...


class SqsHttpRequest:
    """One HTTP request."""

    __slots__ = (
        "_endpoint",
        "_found",
        "_given",
        "_key_id",
        "_mechanism",
        "_principal",
        "_queue",
        "_receive",
        "_scope",
        "_target",
        "action",
        "error",
        "id",
    )

    def __init__(self, endpoint: "SqsEndpoint", scope: Scope, receive: Receive) -> None:
        self.id = scope.get("headrace.request_id") or new_id()
        self._endpoint = endpoint
        self._scope = scope
        self._receive = receive
        self._given: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        """The first header of each name."""
        self._target = self._header(b"x-amz-target")
        self._found: RegisteredAction | None = None
        """The action, if it came by the JSON protocol."""
        self._queue = ""
        self.action = _UNKNOWN_ACTION
        """The action, once it is understood."""
        self.error = ""
        """The code of the error that it was answered with."""
        self._principal = ANONYMOUS
        self._mechanism = NOT_AUTHENTICATED
        self._key_id = ""

    @property
    def request_id(self) -> str:
        """For log lines."""
        return self.id

    @property
    def client(self) -> str:
        """For log lines."""
        found = self._scope.get("client")
        return f"{found[0]}:{found[1]}" if found else "unknown"

    def _header(self, name: bytes) -> str:
        return self._given.get(name, b"").decode("latin-1")

    def begin(
        self, exchange: WholeExchange, answered: Callable[[Answer], None]
    ) -> Callable[[], Awaitable[None]] | None:
        """Begin the work on a request whose body is here. `answered` is called now or later, without a task where the
        action needs none; else by the work that is returned."""
        try:
            body = exchange.take_body()
            work = self._understand(body, self._sender(body))
        except Exception as error:
            answered(self._failed(error))
            return None
        if type(work) is not ActionWork or not isinstance(work.begun, PendingResult):
            return partial(self._finish, work, answered)
        begun = work.begun
        exchange.on_disconnect = begun.hurry
        begun.then(partial(self._settled, work.finish, answered))
        return None

    def _settled(self, finish: Callable[[Any], Any], answered: Callable[[Answer], None], result: "Result[Any]") -> None:
        """Answer when the operation of an action is done."""
        if result.error is not None:
            answer = self._failed(result.error)
        else:
            try:
                answer = self._result(finish(result.answer))
            except Exception as error:
                answer = self._failed(error)
        answered(answer)

    async def _finish(self, work: Awaitable[Any], answered: Callable[[Answer], None]) -> None:
        try:
            answer = self._result(await work)
        except ClientDisconnected:
            return
        except Exception as error:
            answer = self._failed(error)
        answered(answer)

    async def answer(self) -> Answer:
        try:
            body = await self._endpoint.read(self._receive, self._length())
        except SqsError as error:
            # The rest of the body is not read: the connection ends with the answer.
            status, content_type, text, headers = self._refusal(error)
            return status, content_type, text, [*headers, (b"connection", b"close")]
        try:
            try:
                sender = await self._logged_in() if self.has_password else self._sender(body)
                work = self._understand(body, sender)
            finally:
                self._endpoint.forget(body)
            del body
            return self._result(await work)
        except ClientDisconnected:
            raise
        except Exception as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> Answer:
        """The answer for an error."""
        if isinstance(error, SqsError):
            return self._refusal(error)
        if isinstance(error, HeadraceError):
            answer = errors.sqs_error(error, self._queue)
            if answer.status == 500:
                log.error("a request over HTTP has failed: %s", error, exc_info=error, extra={"request": self})
            return self._refusal(answer, error)
        log.error("a request over HTTP has failed: %s", error, exc_info=error, extra={"request": self})
        return self._refusal(errors.internal_failure())

    def _length(self) -> int | None:
        text = self._given.get(b"content-length", b"")
        return int(text[:18]) if text.isdigit() else None

    @property
    def has_password(self) -> bool:
        """Whether it is a call of the SDK with a user's password instead of a signature."""
        return (
            self._target.startswith(extended.TARGET_PREFIX)
            and self._header(b"authorization").startswith(("Basic ", "basic "))
            and self._endpoint.keys.is_required
        )

    async def _logged_in(self) -> str:
        """The user whose password the request has."""
        client, scheme = self._scope.get("client"), self._scope["scheme"]
        host = client[0] if client else "unknown"
        if scheme != "https" and not is_loopback(host):
            raise errors.password_without_tls()
        user = await self._endpoint.login(Subject(host=host, listener=scheme), self._header(b"authorization"))
        if user is None:
            raise errors.wrong_password()
        self._principal, self._mechanism = principal_of(user.name), basic_login.MECHANISM
        return user.name

    def _sender(self, body: bytes) -> str:
        """The user that the request is signed by, or that it names where no signature is required."""
        endpoint, scope = self._endpoint, self._scope
        query = query_pairs(scope["query_string"].decode("latin-1")) if scope["query_string"] else []
        if not endpoint.keys.is_required:
            return auth.claimed_key_id(self._header(b"authorization"), query) or endpoint.realm.account
        headers: dict[str, list[str]] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name in headers:
                headers[name].append(value)
            else:
                headers[name] = [value]
        signed = auth.SignedRequest(scope["method"], scope["raw_path"].decode("latin-1"), query, headers)
        try:
            key_id = auth.verify(signed, body, endpoint.keys.secret, endpoint.realm.wall_ms() / 1000)
        except SqsError as error:
            claimed = auth.claimed_key_id(self._header(b"authorization"), query)
            endpoint.realm.audit.refused(self.caller(), claimed, error)
            raise
        self._key_id, user = key_id, endpoint.keys.owner(key_id)
        self._principal, self._mechanism = principal_of(user), auth.MECHANISM
        return user

    # -- for actions (`calls.RequestOrigin`)

    @property
    def base_url(self) -> str:
        host = self._header(b"host")
        if not host:
            server = self._scope.get("server") or ("localhost", 80)
            host = f"{server[0]}:{server[1]}"
        return f"{self._scope['scheme']}://{host}"

    @property
    def trace(self) -> str:
        return self._header(b"x-amzn-trace-id")

    def caller(self) -> Caller:
        client, scheme = self._scope.get("client"), self._scope["scheme"]
        subject = Subject(self._principal, client[0] if client else "unknown", self._mechanism, scheme)
        return Caller(subject, scheme == "https", self._header(b"user-agent"), self._header(b"referer"))

    def unless_gone(self, what: Awaitable[Any], call: SqsRequest) -> Awaitable[Any]:
        return self._endpoint.unless_gone(self._receive, what, partial(self._is_permitted, call))

    def _is_permitted(self, call: SqsRequest) -> bool:
        keys = self._endpoint.keys
        if self._mechanism == basic_login.MECHANISM:
            is_known = keys.has_user(call.sender)
        else:
            is_known = not keys.is_required or keys.secret(self._key_id) is not None
        return is_known and call.is_permitted()

    # -- by protocol

    def _understand(self, body: bytes, sender: str) -> Awaitable[msgspec.Struct | None]:
        """The work of the action. AccessDenied if the client may not."""
        endpoint, target = self._endpoint, self._target
        realm = endpoint.realm
        call = SqsRequest(realm, sender, self)
        if target.startswith(extended.TARGET_PREFIX):
            self.action, work = extended.understand(call, target, self._header(b"content-type"), body)
            return work
        if target:
            self._found = found = wire_json.find(target)
            request = wire_json.read(found, body)
        else:
            given = wire_query.fields(self._scope["query_string"], body)
            found = wire_query.find(given, self._scope["path"])
            request = wire_query.read(found, given, self._scope["path"])
        self._queue, self.action = _queue_in(request, realm.account), found.name
        if realm.access.is_enforced:
            call.check(found.name, found.needs, request)
        if (rates := endpoint.rates) is not None and rates.is_active:
            self._count(rates, request, sender)
        if realm.audit.records(found.name):
            return realm.audit.watched(found.name, request, self.caller, partial(found.run, call, request))
        return found.run(call, request)

    def _count(self, rates: QueueRates, request: Any, sender: str) -> None:
        """RequestThrottled if the queue or the access key has used up its quota."""
        action = self.action
        messages = len(request.Entries or ()) if action == _SEND_BATCH else int(action == _SEND)
        exceeded = rates.count(self._queue, self._key_id or sender, messages, int(monotonic() * 1000))
        if exceeded is not None:
            raise errors.request_throttled(str(exceeded))

    def _result(self, result: Any) -> Answer:
        if self._found is not None:
            return 200, wire_json.CONTENT_TYPE, wire_json.write(result), []
        if self._target:
            content_type = self._header(b"content-type")
            return 200, extended.content_type(content_type), extended.write(content_type, result), []
        return 200, *query_answers.write(self.action, result, self.id, self._header(b"accept")), []

    def _refusal(self, error: SqsError, cause: HeadraceError | None = None) -> Answer:
        self.error = error.code
        if self._target.startswith(extended.TARGET_PREFIX):
            content_type = self._header(b"content-type")
            return error.status, extended.content_type(content_type), extended.problem(content_type, error, cause), []
        if self._target:
            body, headers = wire_json.write_error(error)
            return error.status, wire_json.CONTENT_TYPE, body, headers
        return error.status, *query_answers.write_error(error, self.id, self._header(b"accept")), []


def _queue_in(request: Any, account: str) -> str:
    """The name of the queue, as its action understands it; empty if it names none."""
    url = getattr(request, "QueueUrl", None)
    return SqsRequest.name_in(url, account) if url else getattr(request, "QueueName", None) or ""
