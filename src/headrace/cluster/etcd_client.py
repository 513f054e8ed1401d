"""The etcd client: failover between members, authentication, timeouts, and the mapping of gRPC errors.

Messages and stubs are `aetcd`'s; its client is not used, because it supports one address, no TLS, no token expiry and
no timeout on a watch. Guarantees:

- One connection at a time, to a member that answers. A call that fails with its connection, or times out, retires the
  connection: its watches end, its other calls run to their end, and the next call connects to the next member.
- Every call ends in bounded time, with a response or with one of the errors below. A call is never sent twice, unless
  etcd rejected the first one for its token.
- A member without a leader is not used: etcd rejects requests with the metadata `hasleader` at once.
- An etcd with another cluster id than in the first response (a new data directory, a restored backup) is refused: its
  revisions are unrelated to those this process has seen.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from aetcd import rpc
from grpc.aio import AioRpcError, Channel, UsageError, insecure_channel, secure_channel

from headrace.cluster.store import StoreRefused, StoreUnavailable

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_OPTIONS = (
    # The environment's HTTP proxy is not meant for etcd.
    ("grpc.enable_http_proxy", 0),
    # Otherwise a new channel would share the old one's broken connection and its reconnect backoff.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    # etcd disconnects clients that ping more often than every 5 seconds.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
_CONNECT_FAILURE = re.compile(
    r"^failed to connect to all addresses; last error: \w+: \S+: (Failed to connect to remote host: )?"
)
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
_LINGER_S = 0.05
_GRACE_S = 0.5
_CLOSE_TIMEOUT_S = 2.0
_NO_USER = "etcd requires authentication: set etcd.user and etcd.password"
_UNDECIDED = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Endpoints and credentials of etcd. `ca`, `certificate` and `key` are PEM."""

    endpoints: tuple[str, ...]
    """HOST:PORT of each member."""
    is_secure: bool = False
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    user: str = ""
    password: str = ""
    connect_timeout_s: float = 2.0
    """For each member."""


class AccessDenied(StoreUnavailable):
    """etcd rejects the client's credentials or permissions."""


class LeaseGone(StoreUnavailable):
    """The lease has expired or was revoked: nothing was changed."""


class Compacted(StoreUnavailable):
    """The requested revision has been compacted."""


class _StaleToken(StoreUnavailable):
    """Rejected because the token has expired; nothing was executed."""


class EtcdChannel:
    """A gRPC channel to one member. `retire` ends it; it is closed after the last call on it."""

    def __init__(self, endpoint: str, channel: Channel) -> None:
        self.endpoint = endpoint
        self.kv = rpc.KVStub(channel)
        self.leases = rpc.LeaseStub(channel)
        self.watches = rpc.WatchStub(channel)
        self.auth = rpc.AuthStub(channel)
        self.maintenance = rpc.MaintenanceStub(channel)
        self.is_retired = False
        self.token = ""
        self._channel = channel
        self._calls = 0
        self._streams: set[Any] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        required = ("hasleader", "true")
        return (required, ("token", self.token)) if self.token else (required,)

    @property
    def is_closed(self) -> bool:
        return self._closing is not None and self._closing.done()

    async def wait_until_settled(self) -> None:
        """Wait until the connection is established or refused."""
        state = self._channel.get_state(try_to_connect=True)
        while state in _UNDECIDED:
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)

    def begin(self, stream: Any = None) -> None:
        """Register a call on this connection until `end`; a stream is cancelled when the connection is retired."""
        self._calls += 1
        if stream is not None:
            self._streams.add(stream)

    def end(self, stream: Any = None) -> None:
        self._calls -= 1
        self._streams.discard(stream)
        self._close_when_unused()

    def retire(self) -> None:
        """Accept no more calls, and cancel the streams on it."""
        self.is_retired = True
        for stream in tuple(self._streams):
            stream.cancel()
        self._close_when_unused()

    def _close_when_unused(self) -> None:
        # Not before: closing a channel makes pending calls look as if their tasks had been cancelled.
        if self.is_retired and not self._calls and self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._channel.close(), name="etcd connection")

    async def closed(self) -> None:
        """Retire it and wait until it is closed, even with calls pending."""
        self.retire()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._channel.close(), name="etcd connection")
        await asyncio.wait((self._closing,), timeout=_CLOSE_TIMEOUT_S)


class EtcdStream:
    """A bidirectional streaming call."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def write(self, message: Any) -> None:
        """Send a message. If the call has ended, this or the next `read` raises the reason."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        self._call.add_done_callback(lambda _: ended.set())
        writing, ending = loop.create_task(self._call.write(message)), loop.create_task(ended.wait())
        try:
            # grpc does not wake a pending write when the connection breaks before the call has started.
            await asyncio.wait((writing, ending), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                await self.read()
        finally:
            writing.cancel()
            ending.cancel()
            await asyncio.wait((writing, ending))
            if not writing.cancelled():
                writing.exception()

    async def read(self) -> Any:
        message = await self._call.read()
        if message is grpc.aio.EOF:
            raise StoreUnavailable("etcd has ended the call")
        return message


class EtcdClient:
    """Calls etcd over one connection, and fails over to the next member."""

    def __init__(self, access: EtcdAccess) -> None:
        self._access = access
        self._next = 0
        self._connection: EtcdChannel | None = None
        self._connecting: asyncio.Task[EtcdChannel] | None = None
        self._retired: set[EtcdChannel] = set()
        self._authenticating: asyncio.Task[None] | None = None
        self._etcd_id = 0
        self._is_closed = False

    async def ask(
        self, method: Callable[[EtcdChannel], Callable[..., Awaitable[Any]]], request: Any, timeout_s: float
    ) -> Any:
        """Send one request and return the response. After `StoreUnavailable` the request may have been executed."""
        connection = await self._connected_to()
        try:
            return await self._ask(connection, method, request, timeout_s)
        except _StaleToken:
            await self._authenticate_again(connection)
            return await self._ask(connection, method, request, timeout_s)

    @asynccontextmanager
    async def stream(self, method: Callable[[EtcdChannel], Callable[..., Any]]) -> AsyncIterator[EtcdStream]:
        """Open a bidirectional stream. Raises `StoreUnavailable` when its connection ends.

        The caller sets timeouts for reads and writes; a `TimeoutError` in the block retires the connection.
        """
        connection = await self._connected_to()
        call = method(connection)(metadata=connection.metadata)
        connection.begin(call)
        try:
            yield EtcdStream(call)
        except (AioRpcError, UsageError, asyncio.CancelledError) as error:
            store_error = self._store_error(connection, error)
            if isinstance(store_error, _StaleToken):
                await self._authenticate_again(connection)
            raise store_error from None
        except TimeoutError:
            self._retire(connection)
            raise StoreUnavailable(f"etcd at {connection.endpoint} did not answer in time") from None
        finally:
            call.cancel()
            connection.end(call)

    async def _connected_to(self) -> EtcdChannel:
        """The current connection, or a new one to a member that answers; raises `StoreUnavailable`."""
        if self._is_closed:
            raise StoreUnavailable("the metadata store is closed")
        if self._connection is not None and not self._connection.is_retired:
            return self._connection
        if self._connecting is None:
            # One attempt shared by all callers; it outlives a caller that is cancelled.
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name="etcd connecting")
            self._connecting.add_done_callback(self._connected)
        return await _await_shared(self._connecting)

    def _retire(self, connection: EtcdChannel) -> None:
        """Retire a broken connection: the next call connects to another member."""
        connection.retire()
        if self._connection is connection:
            self._connection = None
            self._retired.add(connection)

    def check(self, header: Any) -> None:
        """Raise `StoreUnavailable` if this response header has another cluster id than the first one."""
        if not self._etcd_id:
            self._etcd_id = header.cluster_id
        elif header.cluster_id != self._etcd_id:
            raise StoreUnavailable(
                "the etcd behind these endpoints is not the one that this broker started with: "
                "if it was restored from a backup, restart every broker"
            )

    async def close(self) -> None:
        self._is_closed = True
        for task in (self._connecting, self._authenticating):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        connections = self._retired | ({self._connection} if self._connection is not None else set())
        for connection in connections:
            await connection.closed()
        self._connection = None
        self._retired.clear()
        if connections:
            # A grpc thread still reports ended calls to the event loop, and logs an error if that is closed.
            await asyncio.sleep(_LINGER_S)

    async def _authenticate_again(self, connection: EtcdChannel) -> None:
        """Get a new token; concurrent callers share one request."""
        if self._authenticating is None:
            self._authenticating = asyncio.get_running_loop().create_task(self._authenticate(connection))
            self._authenticating.add_done_callback(self._authenticated)
        await _await_shared(self._authenticating)

    def _authenticated(self, task: asyncio.Task[None]) -> None:
        self._authenticating = None
        if not task.cancelled():
            task.exception()

    async def _authenticate(self, connection: EtcdChannel) -> None:
        access = self._access
        if not access.user:
            raise AccessDenied(_NO_USER)
        request = rpc.AuthenticateRequest(name=access.user, password=access.password)
        connection.token = ""
        try:
            answer = await self._ask(connection, lambda to: to.auth.Authenticate, request, access.connect_timeout_s)
        except StoreRefused as error:
            if "authentication is not enabled" not in str(error):
                raise AccessDenied(f"etcd rejects the user {access.user}: check etcd.user and etcd.password") from None
            log.warning("etcd has authentication disabled: etcd.user has no effect")
        else:
            connection.token = answer.token

    async def _connect(self) -> EtcdChannel:
        """Connect to the first member that answers, starting after the last one tried."""
        endpoints, why = self._access.endpoints, ""
        for _ in endpoints:
            endpoint = endpoints[self._next % len(endpoints)]
            self._next += 1
            connection = EtcdChannel(endpoint, self._channel(endpoint))
            try:
                await self._try(connection)
            except BaseException as error:
                await connection.closed()
                if not isinstance(error, StoreUnavailable) or isinstance(error, AccessDenied):
                    raise
                why = str(error)
            else:
                return connection
        raise StoreUnavailable(
            why if len(endpoints) == 1 else f"no etcd member of {', '.join(endpoints)} answers; {why}"
        )

    async def _try(self, connection: EtcdChannel) -> None:
        try:
            async with asyncio.timeout(self._access.connect_timeout_s):
                await connection.wait_until_settled()
                # Raises the reason if there is no connection, and checks the cluster id before anything is written.
                await self._ask(
                    connection, lambda to: to.maintenance.Status, rpc.StatusRequest(), self._access.connect_timeout_s
                )
        except TimeoutError:
            raise StoreUnavailable(f"etcd at {connection.endpoint} does not answer") from None
        if self._access.user:
            await self._authenticate(connection)

    def _connected(self, task: asyncio.Task[EtcdChannel]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()
            self._retired = {each for each in self._retired if not each.is_closed}

    def _channel(self, endpoint: str) -> Channel:
        if not self._access.is_secure:
            return insecure_channel(endpoint, options=_OPTIONS)
        access = self._access
        credentials = grpc.ssl_channel_credentials(access.ca, access.key, access.certificate)
        return secure_channel(endpoint, credentials, options=_OPTIONS)

    async def _ask(
        self,
        connection: EtcdChannel,
        method: Callable[[EtcdChannel], Callable[..., Awaitable[Any]]],
        request: Any,
        timeout_s: float,
    ) -> Any:
        connection.begin()
        try:
            async with asyncio.timeout(timeout_s + _GRACE_S):
                answer = await method(connection)(request, timeout=timeout_s, metadata=connection.metadata)
        except (AioRpcError, UsageError, asyncio.CancelledError) as error:
            raise self._store_error(connection, error) from None
        except TimeoutError:
            self._retire(connection)
            raise StoreUnavailable(f"etcd at {connection.endpoint} did not answer in time") from None
        finally:
            connection.end()
        if hasattr(answer, "header"):
            self.check(answer.header)
        return answer

    def _store_error(self, connection: EtcdChannel, error: BaseException) -> BaseException:
        """The `StoreUnavailable` or `StoreRefused` for a call's error. Retires the connection if it is broken."""
        if isinstance(error, asyncio.CancelledError):
            if _is_cancelled():
                return error
            # The call was cancelled, not this task, because its connection was retired.
            return StoreUnavailable(f"the connection to etcd at {connection.endpoint} was abandoned")
        if not isinstance(error, AioRpcError):
            self._retire(connection)
            return StoreUnavailable(f"the connection to etcd at {connection.endpoint} is closed: {error}")
        return self._status_error(connection, error.code(), error.details() or "")

    def _status_error(self, connection: EtcdChannel, code: grpc.StatusCode, details: str) -> Exception:
        text = _CONNECT_FAILURE.sub("", details.removeprefix("etcdserver: "))
        if any(stale in details for stale in _STALE_TOKEN):
            return _StaleToken(f"the etcd token has expired: {text}")
        if "user name is empty" in details:
            return AccessDenied(_NO_USER)
        match code:
            case grpc.StatusCode.NOT_FOUND if "lease not found" in details:
                return LeaseGone("the lease has expired")
            case grpc.StatusCode.OUT_OF_RANGE if "compacted" in details:
                return Compacted(f"etcd has compacted the revision: {text}")
            case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
                who = f"the user {self._access.user}" if self._access.user else "a client without a user"
                return AccessDenied(f"etcd does not allow {who} to read and write under etcd.prefix: {text}")
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "space exceeded" in details:
                return StoreUnavailable("etcd is full: compact and defragment it, then disarm its alarm")
            case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.FAILED_PRECONDITION:
                return StoreRefused(f"etcd rejects the request: {text}")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                self._retire(connection)
                return StoreUnavailable(f"etcd at {connection.endpoint} did not answer in time")
        self._retire(connection)
        return StoreUnavailable(f"etcd at {connection.endpoint} cannot be reached: {text}")


async def _await_shared(task: asyncio.Task[_T]) -> _T:
    """Await a task shared by several callers. Cancelling a caller does not cancel it; `close` does."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        raise StoreUnavailable("the metadata store is closed") from None


def _is_cancelled() -> bool:
    """True if this task was cancelled, and not just the future it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
