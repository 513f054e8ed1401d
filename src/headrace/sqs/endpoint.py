"""The HTTP endpoint of queues: an ASGI application that detects the protocol, authenticates the client, and answers.

    X-Amz-Target: AmazonSQS.<Action>   the JSON protocol of SQS
    X-Amz-Target: Headrace.<Call>      the calls of the SDK (`extended.py`)
    otherwise                          the query protocol of SQS: a form, or fields in the URL

Each request is answered by itself, errors in the format of its protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any

from headrace.model.users import User
from headrace.observe.request_metrics import ActionMetrics
from headrace.quotas.queue_rates import QueueRates
from headrace.security.login_queue import LoginsBusy
from headrace.security.subject import Subject
from headrace.sqs import actions, errors
from headrace.sqs.access_keys import AccessKeys
from headrace.sqs.bodies import BodyBudget, ClientDisconnected, Receive
from headrace.sqs.calls import Realm
from headrace.sqs.http_request import Answer, Scope, SqsHttpRequest, WholeExchange

MOST_BODY_BYTES = 16 * 1024 * 1024
"""A batch of a MiB in its longest encoding, which is also the most that the SDK sends."""

PasswordLogin = Callable[[Subject, str], Awaitable[User | None]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

__all__ = ["SqsEndpoint", "actions"]


class SqsEndpoint:
    def __init__(
        self,
        realm: Realm,
        keys: AccessKeys,
        bodies: BodyBudget,
        login: PasswordLogin | None = None,
        *,
        meter: ActionMetrics | None = None,
        rates: QueueRates | None = None,
    ) -> None:
        """`login` verifies the passwords of the SDK's clients; without it, only signatures are accepted. With `meter`
        requests are counted and timed; with `rates` they have quotas."""
        self._meter = meter
        self.rates = rates
        self._realm = realm
        self._keys = keys
        self._bodies = bodies
        self._login = login
        self._waiting: dict[asyncio.Future[Any], Callable[[], bool]] = {}
        """Receives that wait for messages, each with whether its client may still receive them."""
        self._is_stopping = False

    async def stop(self) -> None:
        """Answer receives that wait, without messages."""
        self._is_stopping = True
        for task in tuple(self._waiting):
            task.cancel()

    def recheck(self) -> None:
        """Answer receives that wait without messages if a key, an ACL or a policy does not permit them any more."""
        if self._realm.access.is_enforced:
            for task, is_permitted in tuple(self._waiting.items()):
                if not is_permitted():
                    task.cancel()

    def begin(self, exchange: WholeExchange) -> Callable[[], Awaitable[None]] | None:
        """Answer a request that has arrived in whole, without a task if its action needs none; else the work for one.
        Its body is in memory until this returns, and no longer: it does not count for `bodies`."""
        request = SqsHttpRequest(self, exchange.scope, exchange.receive)
        if request.has_password:
            return partial(self, exchange.scope, exchange.receive, exchange.send)
        began_s = 0.0 if self._meter is None else monotonic()
        return request.begin(exchange, partial(self._answered, exchange, request, began_s))

    def _answered(self, exchange: WholeExchange, request: SqsHttpRequest, began_s: float, answer: Answer) -> None:
        status, content_type, body, headers = answer
        lines = b"content-type: %b\r\nx-amzn-requestid: %b\r\n" % (content_type, request.id.encode())
        for header in headers:
            lines += b"%b: %b\r\n" % header
        exchange.respond(status, lines, body)
        self._count(request, status, began_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application for requests over HTTP."""
        request = SqsHttpRequest(self, scope, receive)
        began_s = 0.0 if self._meter is None else monotonic()
        try:
            answer = await request.answer()
        except ClientDisconnected:
            return
        status, content_type, body, headers = answer
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", content_type),
                    (b"content-length", b"%d" % len(body)),
                    (b"x-amzn-requestid", request.id.encode()),
                    *headers,
                ],
            }
        )
        await send({"type": "http.response.body", "body": body})
        self._count(request, status, began_s)

    def _count(self, request: SqsHttpRequest, status: int, began_s: float) -> None:
        if self._meter is not None:
            code = request.error or ("Success" if status == HTTPStatus.OK else str(status))
            self._meter.answered(request.action, code, monotonic() - began_s)

    # -- for requests

    @property
    def bodies(self) -> BodyBudget:
        return self._bodies

    @property
    def realm(self) -> Realm:
        return self._realm

    @property
    def keys(self) -> AccessKeys:
        return self._keys

    async def login(self, client: Subject, header: str) -> User | None:
        """The user that an `Authorization` header with a password names; None if it is wrong."""
        try:
            return None if self._login is None else await self._login(client, header)
        except LoginsBusy:
            raise errors.too_many_logins() from None

    async def read(self, receive: Receive, length: int | None) -> bytes:
        return await self._bodies.read(receive, length, MOST_BODY_BYTES)

    def forget(self, body: bytes) -> None:
        self._bodies.free(len(body))

    async def unless_gone(self, receive: Receive, what: Awaitable[Any], is_permitted: Callable[[], bool]) -> Any:
        """The result, or None if the broker stops or it is not permitted any more. `ClientDisconnected` if the client
        disconnects."""
        task = asyncio.ensure_future(what)
        gone = asyncio.ensure_future(receive())
        self._waiting[task] = is_permitted
        if self._is_stopping:
            task.cancel()
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnected
            return None if task.cancelled() else task.result()
        finally:
            self._waiting.pop(task, None)
            for each in (task, gone):
                each.cancel()
