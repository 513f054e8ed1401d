"""Handlers whose requests the audit log records: administrative changes, produce and consume.

`route` is used in place of that of `dispatch`: it wraps the handlers of these APIs, and no others.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from types import CoroutineType
from typing import Any

from headrace.kafka import dispatch
from headrace.kafka.audit_changes import ADMINISTRATIVE, METADATA, AdminChange, changes, created_topics, wanted_topics
from headrace.kafka.dispatch import Context, Route
from headrace.kafka.permissions import READ_TOPIC, WRITE_TOPIC, Need
from headrace.model.ids import TopicName
from headrace.protocol.codec import api_name
from headrace.runtime.deferred import Deferred
from headrace.security.audit.event import AuditClass

log = logging.getLogger(__name__)

_PRODUCE, _FETCH, _SHARE_FETCH = 0, 1, 78
_NEVER_WAIT = frozenset({33, 44})
"""Changes of settings: by these the audit log is repaired."""
_AUTHORIZATION_FAILED = "_AUTHORIZATION_FAILED"

Handle = Callable[[Context, Any], Any]
Note = Callable[[Any], None]


@cache
def route(api_key: int, api_version: int) -> Route | None:
    """The route of an API version, with the audit log where it records the API; None if it is not served."""
    found = dispatch.route(api_key, api_version)
    if found is None:
        return None
    if api_key in ADMINISTRATIVE:
        return found._replace(handler=_change(found.handler))
    if api_key == METADATA:
        return found._replace(handler=_creating(found.handler))
    if api_key in _DATA:
        return found._replace(handler=_use(found.handler, *_DATA[api_key]))
    return found


# -- administrative changes


def _change(handler: Handle) -> Handle:
    def handle(ctx: Context, request: Any) -> Any:
        was_wanted = _is_wanted(ctx)
        if was_wanted and ctx.services.security.audit.is_blocking and ctx.header.api_key not in _NEVER_WAIT:
            return _when_room(handler, ctx, request)

        def note(answer: Any) -> None:
            # A request that switches the audit log on or off is recorded.
            if was_wanted or _is_wanted(ctx):
                _record(ctx, request, answer)

        return _noted(handler(ctx, request), note)

    return handle


def _is_wanted(ctx: Context) -> bool:
    return ctx.services.security.audit.wants(AuditClass.ADMIN, ctx.peer.subject.principal)


def _creating(handler: Handle) -> Handle:
    """Metadata, which may create topics; then it is a coroutine."""

    def handle(ctx: Context, request: Any) -> Any:
        result = handler(ctx, request)
        if not isinstance(result, CoroutineType):
            return result
        if not _is_wanted(ctx):
            return result
        topics = ctx.services.metadata.image.topics
        missing = [name for name in wanted_topics(request) if TopicName(name) not in topics]
        return _noted(result, lambda answer: _record_all(ctx, created_topics(answer, missing)))

    return handle


async def _when_room(handler: Handle, ctx: Context, request: Any) -> Any:
    await ctx.services.security.audit.room()
    result = _noted(handler(ctx, request), lambda answer: _record(ctx, request, answer))
    return await result if isinstance(result, CoroutineType) else result


def _noted(result: Any, note: Note) -> Any:
    """The handler's result, with `note` called with the answer before it is sent; with None if the handler fails."""
    if isinstance(result, CoroutineType):
        return _noted_coroutine(result, note)
    if isinstance(result, Deferred):
        return _noted_deferred(result, note)
    note(result)
    return result


async def _noted_coroutine(work: Any, note: Note) -> Any:
    try:
        result = await work
    except Exception:
        note(None)
        raise
    return _noted(result, note)


def _noted_deferred(deferred: Deferred[Any], note: Note) -> Deferred[Any]:
    noted: Deferred[Any] = Deferred(deferred.hurry, size_bytes=deferred.size_bytes)

    def settled(answer: Any) -> None:
        note(answer)
        noted.resolve(answer)

    deferred.then(settled)
    return noted


def _record(ctx: Context, request: Any, answer: Any) -> None:
    _record_all(ctx, changes(ctx.header.api_key, request, answer))


def _record_all(ctx: Context, found: Iterator[AdminChange]) -> None:
    """Record each change. An error here must not become one of the request, which is done."""
    try:
        for change in found:
            if change.error.endswith(_AUTHORIZATION_FAILED):
                continue  # Recorded as a denial, with the rule.
            ctx.services.security.audit.changed(
                ctx.peer.subject,
                ctx.header.client_id or "",
                api_name(ctx.header.api_key),
                **change._asdict(),
            )
    except Exception:
        log.exception("the audit event of %s cannot be made", api_name(ctx.header.api_key))


# -- produce and consume


def _use(handler: Handle, kind: AuditClass, need: Need) -> Handle:
    def handle(ctx: Context, request: Any) -> Any:
        if kind not in ctx.services.security.audit.rules.classes:
            return handler(ctx, request)
        result = handler(ctx, request)
        _record_use(ctx, kind, need, request)
        return result

    return handle


def _record_use(ctx: Context, kind: AuditClass, need: Need, request: Any) -> None:
    """Record the topics that the client may use; those that it may not are in the events of denials."""
    audit = ctx.services.security.audit
    if not request.topics or _is_replica(request) or not audit.is_sampled():
        return
    subject, client_id = ctx.peer.subject, ctx.header.client_id or ""
    action = api_name(ctx.header.api_key)
    for topic in _topics(ctx, request):
        if ctx.shows(need, topic):
            audit.used(kind, subject, client_id, action, topic)


def _is_replica(request: Any) -> bool:
    """Whether another broker replicates by this fetch."""
    state = getattr(request, "replica_state", request)
    return int(getattr(state, "replica_id", -1)) >= 0


def _topics(ctx: Context, request: Any) -> set[str]:
    """The names of the topics in a Produce, Fetch or ShareFetch request."""
    names = ctx.services.metadata.image.topic_names
    found = set()
    for topic in request.topics:
        key = topic[0] if isinstance(topic, tuple) else getattr(topic, "topic", None) or topic.topic_id
        name = key if isinstance(key, str) else names.get(key)
        if name is not None:
            found.add(name)
    return found


_DATA = {
    _PRODUCE: (AuditClass.PRODUCE, WRITE_TOPIC),
    _FETCH: (AuditClass.CONSUME, READ_TOPIC),
    _SHARE_FETCH: (AuditClass.CONSUME, READ_TOPIC),
}
