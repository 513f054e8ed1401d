"""The table of APIs: a decorator registers each handler, and ApiVersions is derived from the table.

Handlers are called in the order in which requests arrive on a connection. The return value decides when the next
request of that connection may be handled; answers are always sent in the order of the requests.

- a response (kio entity), or `Raw` buffers written by hand: done;
- a `Deferred` of either: *dispatched*. The order is fixed (Produce has appended, Fetch waits for data), the next
  request is handled at once and the answer follows later;
- a coroutine of any of these: the next request of this connection waits until it ends (but not for a `Deferred` that
  it returns);
- `NO_ANSWER`: nothing is sent (Produce with acks=0).
"""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

from headrace.kafka.authentication import Authentication
from headrace.kafka.grants import TopicGrants
from headrace.kafka.metered_request import ClientMeter, MeteredRequest
from headrace.kafka.ordered_reads import OrderedReader
from headrace.kafka.outbox import Part
from headrace.kafka.permissions import Need, not_authorized
from headrace.kafka.services import Services
from headrace.model.acls import CLUSTER_NAME
from headrace.model.image import Endpoint
from headrace.protocol.codec import Entity, RequestHeader, api_name, is_flexible, read_request, response_schema
from headrace.protocol.frames import Frame
from headrace.replication.partition import Partition
from headrace.runtime.deferred import Deferred
from headrace.security.subject import UNKNOWN, Subject


@dataclass(frozen=True, slots=True)
class Raw:
    """A response encoded by hand: everything after the frame's length, as buffers that are sent unchanged."""

    buffers: Sequence[Part]


class NoAnswer:
    """The type of `NO_ANSWER`."""


NO_ANSWER: Final = NoAnswer()

Answer = Entity | Raw | NoAnswer
"""A kio response entity, `Raw` or `NO_ANSWER`."""


class Delivered(NamedTuple):
    """A fetch of a consumer that was sent records from `offset` on, none of them at or past `limit`."""

    offset: int
    limit: int


@dataclass(slots=True)
class Peer:
    """The client of a connection; one object per connection."""

    address: str
    local_endpoint: Endpoint
    """The address at which this client reached this broker, which Metadata returns to it."""
    client_software: str = "unknown"
    client_id: str | None = None
    """That of the last request."""
    requests: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    subject: Subject = UNKNOWN
    """Who the client is; replaced when it has authenticated."""
    listener: str = ""
    """The name of the listener it connected to: Metadata shows the brokers at their addresses of that listener."""
    authentication: Authentication | None = None
    """The SASL state; None on a listener without SASL."""
    is_follower: bool = False
    """Whether it is a broker that fetches as a follower."""
    delivered: dict[Partition, Delivered] = field(default_factory=dict)
    """What the last fetch was sent of partitions where the number of records is known only from the next one."""
    ordered_reads: dict[Partition, OrderedReader] | None = None
    """The partitions of which it reads old data; None if there are none. `OrderedReads` takes note of their slices."""
    on_closed: dict[Hashable, Callable[[], None]] = field(default_factory=dict)
    """Callbacks for when the connection is lost, to end state bound to it. State that ends earlier removes its own."""
    meter: ClientMeter | None = None
    """Counts what the client uses, as far as quotas limit it; found with its first request that may count, and again
    when it turns out to be another client."""
    grants: TopicGrants = field(default_factory=TopicGrants)
    """The topics that the client was found to be allowed to write to and to read."""

    def set_subject(self, subject: Subject) -> None:
        """The client has authenticated."""
        self.subject = subject
        self._find_accounts_again()

    def set_software(self, software: str) -> None:
        """The client has said what it is."""
        self.client_software = software
        self._find_accounts_again()

    def _find_accounts_again(self) -> None:
        if self.meter is not None:
            self.meter.expire()

    @property
    def host(self) -> str:
        """The address without its port, written as Kafka's tools show it."""
        return f"/{self.address.rpartition(':')[0]}"


class Context(NamedTuple):
    """The context of a request: services, peer and request header."""

    header: RequestHeader
    peer: Peer
    services: Services
    metered: MeteredRequest | None = None
    """Counts what the request uses; None while no quota limits clients, and for brokers."""

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def request_id(self) -> str:
        """The connection and the correlation id, for log lines."""
        return f"{self.peer.address}/{self.header.correlation_id}"

    @property
    def client(self) -> str:
        """The client id and the address, for log lines."""
        return f"{self.header.client_id or ''} {self.peer.address}".lstrip()

    def allows(self, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this; a denial goes to the audit log. The name of a cluster is always the same."""
        security = self.services.security
        authorizer, subject = security.authorizer, self.peer.subject
        # Not by way of `security.allows`: this is on the path of every Produce and Fetch.
        if authorizer is None:
            return True
        if authorizer.allows(subject.principal, subject.host, need.operation, need.kind, name):
            security.permitted[need.operation, need.kind] += 1
            return True
        action, client_id = api_name(self.header.api_key), self.header.client_id or ""
        security.denied(subject, client_id, action, need.operation, need.kind, name)
        return False

    def require(self, need: Need, name: str = CLUSTER_NAME) -> None:
        """Raise `NotAuthorized` unless the client may do this."""
        if not self.allows(need, name):
            raise not_authorized(need, name)

    def shows(self, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Like `allows`, for lists that leave out what the client may not see: that is no denial."""
        security = self.services.security
        return security.authorizer is None or security.allows(self.peer.subject, need.operation, need.kind, name)

    @property
    def schema(self) -> ModuleType:
        """The module of this version's response classes: `make(ctx.schema.MetadataResponse, …)`."""
        return response_schema(self.header.api_key, self.header.api_version)


Q = TypeVar("Q")
"""A request: kio's class of the newest served version. Older versions lack some fields, which `getattr` reads."""
A = TypeVar("A", bound=Answer)

Result: TypeAlias = A | Deferred[A] | Coroutine[Any, Any, A | Deferred[A]]
Handler = Callable[[Context, Q], Result[A]]
Read = Callable[[Frame, RequestHeader], Q]
"""Decodes a request. The result may refer to the frame, which is valid until the handler has returned or ended."""


Refuse = Callable[[bytes | memoryview, int], bytes]
"""Encodes the answer (body, no header) to a request of a version that is advertised but not served."""


@dataclass(frozen=True, slots=True)
class Api(Generic[Q, A]):
    key: int
    min_version: int
    max_version: int
    handler: Handler[Q, A]
    read: Read[Q]
    min_served: int
    """Versions below this are advertised for the sake of old clients and refused by `refuse`."""
    refuse: Refuse | None
    needs: tuple[Need, ...]
    """The permissions that the handler checks."""


APIS: dict[int, Api[Any, Any]] = {}


@overload
def handles(
    key: int,
    min_version: int,
    max_version: int,
    *,
    needs: tuple[Need, ...],
    min_served: int | None = None,
    refuse: Refuse | None = None,
) -> Callable[[Handler[Q, A]], Handler[Q, A]]: ...
@overload
def handles(
    key: int,
    min_version: int,
    max_version: int,
    *,
    needs: tuple[Need, ...],
    read: Read[Q],
    min_served: int | None = None,
    refuse: Refuse | None = None,
) -> Callable[[Handler[Q, A]], Handler[Q, A]]: ...
def handles(
    key: int,
    min_version: int,
    max_version: int,
    *,
    needs: tuple[Need, ...],
    read: Read[Any] = read_request,
    min_served: int | None = None,
    refuse: Refuse | None = None,
) -> Callable[[Handler[Any, Any]], Handler[Any, Any]]:
    """Register a function as the handler of an API for a range of versions; it checks the permissions in `needs`."""

    def register(handler: Handler[Any, Any]) -> Handler[Any, Any]:
        if key in APIS:
            raise ValueError(f"API {key} has two handlers")
        served = min_version if min_served is None else min_served
        APIS[key] = Api(key, min_version, max_version, handler, read, served, refuse, needs)
        return handler

    return register


class Route(NamedTuple):
    """The handler and request decoder of an API at one version."""

    handler: Callable[[Context, Any], Any]
    read: Read[Any]
    flexible: bool


@cache
def route(api_key: int, api_version: int) -> Route | None:
    """Return the route of an API version; None if it is not served."""
    api = APIS.get(api_key)
    if api is None or not api.min_served <= api_version <= api.max_version:
        return None
    return Route(api.handler, api.read, is_flexible(api_key, api_version))
