"""The table of APIs: a handler registers itself beside its code, and ApiVersions is derived from the table.

A handler is called in the order in which requests arrive on a connection. What it returns decides when the next
request of that connection may be handled; answers always leave in the order of the requests.

- a response (kio entity), or `Raw` buffers written by hand: done;
- a `Deferred` of either: *dispatched*. The order is fixed (Produce has appended, Fetch waits for data), the next
  request is handled at once and the answer comes later;
- a coroutine of any of these: the next request of this connection waits until it is done (a `Deferred` that it
  returns is not waited for);
- `NO_ANSWER`: nothing is sent (Produce with acks=0).
"""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from headrace.kafka.outbox import Part
from headrace.kafka.services import Services
from headrace.model.image import Endpoint
from headrace.protocol.codec import RequestHeader, is_flexible, read_request, response_schema
from headrace.protocol.framing import Frame
from headrace.runtime.deferred import Deferred


@dataclass(frozen=True, slots=True)
class Raw:
    """A response written by hand: everything after the frame's length, as buffers that are sent as they are."""

    buffers: Sequence[Part]


class NoAnswer:
    """The type of `NO_ANSWER`."""


NO_ANSWER: Final = NoAnswer()

Answer = Any
"""A kio response entity, `Raw` or `NO_ANSWER`."""


@dataclass(slots=True)
class Peer:
    """Who is at the other end of a connection; lives as long as it."""

    address: str
    local_endpoint: Endpoint
    """Where this client reaches this broker: what Metadata tells it."""
    client_software: str = "unknown"
    on_closed: dict[Hashable, Callable[[], None]] = field(default_factory=dict)
    """Called when the connection is gone, for what lives only as long as it. Who ends before that takes itself out."""

    @property
    def host(self) -> str:
        """The address without its port, written as Kafka's tools show it."""
        return f"/{self.address.rpartition(':')[0]}"


class Context(NamedTuple):
    """What a handler knows beside the request itself."""

    header: RequestHeader
    peer: Peer
    services: Services

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def schema(self) -> Any:
        """The module of this version's response classes: `make(ctx.schema.MetadataResponse, …)`."""
        return response_schema(self.header.api_key, self.header.api_version)


Result = Answer | Deferred[Answer] | Coroutine[Any, Any, Answer]
Handler = Callable[[Context, Any], Result]
Read = Callable[[Frame, RequestHeader], Any]
"""Reads a request; what it returns may refer to the frame, which lives until the handler has returned or ended."""


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    min_version: int
    max_version: int
    handler: Handler
    read: Read
    min_served: int
    """Versions below this are advertised for the sake of old clients and refused by `refuse`."""
    refuse: Callable[[bytes | memoryview, int], bytes] | None
    """The answer (body, no header) to a request of a version that is advertised but not served."""


APIS: dict[int, Api] = {}


def handles(
    key: int,
    min_version: int,
    max_version: int,
    *,
    read: Read = read_request,
    min_served: int | None = None,
    refuse: Callable[[bytes | memoryview, int], bytes] | None = None,
) -> Callable[[Handler], Handler]:
    """Register a function as the handler of an API for a range of versions."""

    def register(handler: Handler) -> Handler:
        if key in APIS:
            raise ValueError(f"API {key} has two handlers")
        served = min_version if min_served is None else min_served
        APIS[key] = Api(key, min_version, max_version, handler, read, served, refuse)
        return handler

    return register


class Route(NamedTuple):
    """An API at one version, looked up once."""

    handler: Handler
    read: Read
    flexible: bool


@cache
def route(api_key: int, api_version: int) -> Route | None:
    """None unless this version of this API is served."""
    api = APIS.get(api_key)
    if api is None or not api.min_served <= api_version <= api.max_version:
        return None
    return Route(api.handler, api.read, is_flexible(api_key, api_version))
