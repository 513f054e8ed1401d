"""W3C trace context in the headers of messages: reading it, and links with it.

It is in the headers `traceparent` and `tracestate`, and in the attributes of these names that a client of the SQS API
has sent. A message that is retried, dead-lettered or redriven keeps the ones it was sent with.
"""

from collections.abc import Iterable, Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace.client.message import Header
from headrace.model import queued

MAX_LINKS = 128
"""What an SDK retains by default: a receive of more messages links the first ones."""

_TRACE_HEADERS = ("traceparent", "tracestate")
_NOTHING = Context()
_propagator = TraceContextTextMapPropagator()


def context_headers(span: Span) -> list[Header]:
    """The headers with the context of a span; none if it has none."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, _NOTHING))
    return [(name, text.encode()) for name, text in carrier.items()]


def links_of(headers: Iterable[Sequence[Header]]) -> list[Link]:
    """Links with the contexts that messages carry, no more than `MAX_LINKS`."""
    links: list[Link] = []
    for each in headers:
        if len(links) >= MAX_LINKS:
            break
        if (carrier := _carrier(each)) is not None:
            found = trace.get_current_span(_propagator.extract(carrier, _NOTHING)).get_span_context()
            if found.is_valid:
                links.append(Link(found))
    return links


def has_context(headers: Sequence[Header]) -> bool:
    return bool(links_of([headers]))


def _carrier(headers: Sequence[Header]) -> Mapping[str, str] | None:
    """The trace headers of a message; None if it has none."""
    carrier: dict[str, str] | None = None
    for name, value in headers:
        if value is None:
            continue
        if name.startswith(queued.ATTRIBUTE_PREFIX):
            # An attribute of the SQS API: its type, a line feed, its value.
            name, value = name.removeprefix(queued.ATTRIBUTE_PREFIX), value.partition(b"\n")[2]
        if name in _TRACE_HEADERS:
            carrier = carrier or {}
            carrier[name] = value.decode("ascii", "replace")
    return carrier


def source_links(headers: Iterable[Sequence[Header]], most: int = MAX_LINKS) -> list[Link]:
    """Links with the contexts that messages carry, each trace once: for a batch of many messages."""
    found: dict[int, Link] = {}
    for each in headers:
        if len(found) >= most:
            break
        for link in links_of([each]):
            found.setdefault(link.context.trace_id, link)
    return list(found.values())
