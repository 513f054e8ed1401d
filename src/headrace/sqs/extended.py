"""The calls `Headrace.*` of the SDK and the command line: all operations of queues (see `model.queue_wire`)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import msgspec

from headrace.coordinator.completion import PendingResult
from headrace.model import queue_wire as wire
from headrace.model.acls import AclOperation
from headrace.model.errors import HeadraceError
from headrace.queues.api import Failures, QueueEdit, QueueInfo, RangeAcks, RangeFailures, ReceiveOptions
from headrace.sqs import attributes, errors
from headrace.sqs.actions.move_tasks import MOVED_BY, sources_of
from headrace.sqs.calls import ActionWork, QueueNeed, SqsRequest
from headrace.sqs.errors import SqsError
from headrace.sqs.needs import ALL_ORIGINS, CREATE_QUEUE_NAME, DESCRIBE_LISTED, THE_QUEUE, write_to

TARGET_PREFIX = wire.TARGET_PREFIX
MOST_MESSAGES = 1_000
MOST_WAIT_MS = 60_000
_LAST_OFFSET = (1 << 62) - 1

_CALLS = {call.__name__: call for call in wire.ANSWERS}
_from_msgpack = {name: msgspec.msgpack.Decoder(call).decode for name, call in _CALLS.items()}
_from_json = {name: msgspec.json.Decoder(call).decode for name, call in _CALLS.items()}
_to_msgpack = msgspec.msgpack.Encoder().encode
_to_json = msgspec.json.Encoder().encode


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == wire.JSON


def content_type(asked: str) -> bytes:
    return (wire.JSON if _is_json(asked) else wire.MSGPACK).encode()


def understand(call: SqsRequest, target: str, content: str, body: bytes) -> tuple[str, Awaitable[Any]]:
    """The name of the call, and the coroutine that does it."""
    name = target.removeprefix(TARGET_PREFIX)
    if name not in _CALLS:
        raise errors.unknown_operation(name)
    try:
        request = (_from_json if _is_json(content) else _from_msgpack)[name](body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.malformed(f"this is not a call {name}: {error}") from None
    found = CALLS[type(request)]
    if call.realm.access.is_enforced:
        call.check(found.action, found.needs, request)
    audit = call.realm.audit
    if audit.records(name):
        return name, audit.watched(name, request, call.caller, partial(found.work, call, request))
    return name, found.work(call, request)


def write(content: str, answer: Any) -> bytes:
    return (_to_json if _is_json(content) else _to_msgpack)(answer)


def problem(content: str, error: SqsError, cause: HeadraceError | None) -> bytes:
    if cause is not None:
        return write(content, _problem(cause))
    return write(content, wire.Problem(error.code, error.own_words))


def _problem(error: HeadraceError) -> wire.Problem:
    return wire.Problem(type(error).__name__, str(error))


# -- queues


async def _create(call: SqsRequest, asked: wire.CreateQueue) -> wire.Description:
    now = str(call.realm.wall_ms() // 1000)
    stored = {attributes.CREATED: now, attributes.MODIFIED: now}
    return _description(await call.queues.create(asked.queue, QueueEdit(asked.settings, stored)))


async def _alter(call: SqsRequest, asked: wire.AlterQueue) -> wire.Nothing:
    stored = {attributes.MODIFIED: str(call.realm.wall_ms() // 1000)}
    await call.queues.alter(asked.queue, QueueEdit(asked.settings, stored))
    return wire.Nothing()


async def _delete(call: SqsRequest, asked: wire.DeleteQueue) -> wire.Nothing:
    await call.queues.delete(asked.queue)
    return wire.Nothing()


async def _describe(call: SqsRequest, asked: wire.DescribeQueue) -> wire.Description:
    info = call.queues.find(asked.queue)
    return _description(info, await call.queues.counts(asked.queue))


async def _list(call: SqsRequest, asked: wire.ListQueues) -> wire.Descriptions:
    found = [info for info in call.queues.queues(asked.prefix) if call.sees(info)]
    if not asked.with_counts:
        return wire.Descriptions([_description(info) for info in found])
    counts = await asyncio.gather(*[_counts_if_known(call, info.name) for info in found])
    return wire.Descriptions(list(map(_description, found, counts)))


async def _counts_if_known(call: SqsRequest, queue: str) -> wire.Counts | None:
    """None for a queue that is unavailable or was deleted meanwhile: the others are listed all the same."""
    try:
        return await call.queues.counts(queue)
    except HeadraceError:
        return None


def _description(info: QueueInfo, counts: wire.Counts | None = None) -> wire.Description:
    settings = asdict(info.settings)
    del settings["attributes"]
    return wire.Description(info.name, info.topic_id, settings, counts)


# -- messages


def _send(call: SqsRequest, asked: wire.Send) -> Awaitable[Any]:
    _check_count(len(asked.messages))
    return ActionWork(call.queues.begin_send(asked.queue, asked.messages), wire.AllSent)


def _receive(call: SqsRequest, asked: wire.Receive) -> Awaitable[Any]:
    _check_count(asked.max_messages)
    wait_ms = asked.wait_ms
    if wait_ms is not None and not 0 <= wait_ms <= MOST_WAIT_MS:
        raise errors.invalid_parameter(f"a receive waits 0 to {MOST_WAIT_MS} ms, and not {wait_ms}")
    options = ReceiveOptions(asked.max_messages, wait_ms, asked.visibility_ms, asked.attempt_id)
    receiving: Awaitable[list[wire.Received] | wire.AllReceived] = (
        call.queues.begin_receive_batches(asked.queue, options)
        if asked.as_batches
        else call.queues.begin_receive(asked.queue, options)
    )
    # What is resolved without a coroutine does not wait for messages.
    if wait_ms != 0 and not isinstance(receiving, PendingResult):
        receiving = call.unless_gone(receiving)
    return ActionWork(receiving, _all_received)


def _all_received(found: list[wire.Received] | wire.AllReceived | None) -> wire.AllReceived:
    return found if isinstance(found, wire.AllReceived) else wire.AllReceived(found or [])


def _acknowledge(call: SqsRequest, asked: wire.Acknowledge) -> Awaitable[Any]:
    if not asked.ranges:
        _check_count(len(asked.receipts))
        return ActionWork(call.queues.begin_acknowledge(asked.queue, asked.receipts), _outcomes)
    acks = RangeAcks(asked.topic_id, asked.ranges)
    if any(not 0 <= first <= last <= _LAST_OFFSET for first, last, _ in asked.ranges):
        raise errors.invalid_parameter("a range of messages has a first and a last offset, in this order")
    _check_count(len(asked.receipts) + acks.count)
    in_ranges = call.queues.begin_acknowledge_ranges(asked.queue, acks)
    if not asked.receipts:
        return ActionWork(in_ranges, lambda failures: wire.Outcomes([], _range_problems(failures)))
    return _acknowledge_both(call.queues.begin_acknowledge(asked.queue, asked.receipts), in_ranges)


async def _acknowledge_both(single: Awaitable[Failures], in_ranges: Awaitable[RangeFailures]) -> wire.Outcomes:
    return wire.Outcomes(_problems(await single), _range_problems(await in_ranges))


def _range_problems(failures: RangeFailures) -> list[tuple[int, wire.Problem]]:
    return [(offset, _problem(failure)) for offset, failure in failures]


def _extend(call: SqsRequest, asked: wire.Extend) -> Awaitable[Any]:
    _check_count(len(asked.wanted))
    return ActionWork(call.queues.extend(asked.queue, asked.wanted), _outcomes)


def _nack(call: SqsRequest, asked: wire.GiveBack) -> Awaitable[Any]:
    _check_count(len(asked.wanted))
    return ActionWork(call.queues.nack(asked.queue, asked.wanted), _outcomes)


def _check_count(number: int) -> None:
    if not 1 <= number <= MOST_MESSAGES:
        raise errors.invalid_parameter(f"a call is about 1 to {MOST_MESSAGES} messages, and not {number}")


def _outcomes(failures: Failures) -> wire.Outcomes:
    return wire.Outcomes(_problems(failures))


def _problems(failures: Failures) -> list[wire.Problem | None]:
    return [None if failure is None else _problem(failure) for failure in failures]


async def _peek(call: SqsRequest, asked: wire.Peek) -> wire.AllPeeked:
    return wire.AllPeeked(await call.queues.peek(asked.queue, asked.wanted, asked.after_offset))


async def _purge(call: SqsRequest, asked: wire.Purge) -> wire.Nothing:
    await call.queues.purge(asked.queue)
    return wire.Nothing()


async def _count(call: SqsRequest, asked: wire.Count) -> wire.Counts:
    return await call.queues.counts(asked.queue)


# -- moves


async def _start_move(call: SqsRequest, asked: wire.StartMove) -> wire.Move:
    return await call.queues.start_move(asked.source, asked.destination, asked.wanted, asked.per_second)


async def _cancel_move(call: SqsRequest, asked: wire.CancelMove) -> wire.Move:
    return await call.queues.cancel_move(asked.move_id)


async def _moves(call: SqsRequest, asked: wire.ListMoves) -> wire.Moves:
    return wire.Moves(await call.queues.moves(asked.source))


# -- the table of calls


def _queue(_: SqsRequest, asked: Any) -> Iterable[str]:
    return (asked.queue,)


def _source(_: SqsRequest, asked: Any) -> Iterable[str]:
    return (asked.source,)


def _destination(_: SqsRequest, asked: wire.StartMove) -> Iterable[str]:
    return () if asked.destination is None else (asked.destination,)


def _origins(call: SqsRequest, asked: wire.StartMove) -> Iterable[str]:
    return sources_of(call, asked.source) if asked.destination is None else ()


def _moved_source(call: SqsRequest, asked: wire.CancelMove) -> Iterable[str]:
    return (call.queues.source_of(asked.move_id),)


def _dead_letter_queue(_: SqsRequest, asked: wire.CreateQueue | wire.AlterQueue) -> Iterable[str]:
    target = asked.settings.get("dead.letter")
    return (target,) if target else ()


def _if_attributes_change(_: SqsRequest, asked: wire.CreateQueue | wire.AlterQueue) -> Iterable[str]:
    """The attributes of a queue have its policy."""
    return (asked.queue,) if "attributes" in asked.settings else ()


@dataclass(frozen=True, slots=True)
class ExtendedCall:
    work: Callable[[SqsRequest, Any], Awaitable[Any]]
    action: str
    """The action of SQS that does the same: the one that policies of queues allow or deny."""
    needs: tuple[QueueNeed, ...]


def _need(operation: AclOperation) -> QueueNeed:
    return QueueNeed(operation, _queue, THE_QUEUE)


_TO_DEAD_LETTERS = write_to(_dead_letter_queue, "the dead-letter queue, if it is set")
_SETS_POLICY = QueueNeed(AclOperation.ALTER, _if_attributes_change, "the queue, if its attributes are set")
_CREATE = QueueNeed(AclOperation.CREATE, _queue, CREATE_QUEUE_NAME.about)
_READ, _DESCRIBE = _need(AclOperation.READ), _need(AclOperation.DESCRIBE)

CALLS: dict[type[msgspec.Struct], ExtendedCall] = {
    wire.CreateQueue: ExtendedCall(_create, "CreateQueue", (_CREATE, _SETS_POLICY, _TO_DEAD_LETTERS)),
    wire.AlterQueue: ExtendedCall(
        _alter, "SetQueueAttributes", (_need(AclOperation.ALTER_CONFIGS), _SETS_POLICY, _TO_DEAD_LETTERS)
    ),
    wire.DeleteQueue: ExtendedCall(_delete, "DeleteQueue", (_need(AclOperation.DELETE),)),
    wire.DescribeQueue: ExtendedCall(_describe, "GetQueueAttributes", (_DESCRIBE,)),
    wire.ListQueues: ExtendedCall(_list, "ListQueues", (DESCRIBE_LISTED,)),
    wire.Send: ExtendedCall(_send, "SendMessage", (_need(AclOperation.WRITE),)),
    wire.Receive: ExtendedCall(_receive, "ReceiveMessage", (_READ,)),
    wire.Acknowledge: ExtendedCall(_acknowledge, "DeleteMessage", (_READ,)),
    wire.Extend: ExtendedCall(_extend, "ChangeMessageVisibility", (_READ,)),
    wire.GiveBack: ExtendedCall(_nack, "ChangeMessageVisibility", (_READ,)),
    wire.Peek: ExtendedCall(_peek, "ReceiveMessage", (_READ,)),
    wire.Purge: ExtendedCall(_purge, "PurgeQueue", (_need(AclOperation.DELETE),)),
    wire.Count: ExtendedCall(_count, "GetQueueAttributes", (_DESCRIBE,)),
    wire.StartMove: ExtendedCall(
        _start_move,
        "StartMessageMoveTask",
        (
            QueueNeed(AclOperation.READ, _source, "the source", ("StartMessageMoveTask", *MOVED_BY)),
            write_to(_destination, "the destination"),
            write_to(_origins, ALL_ORIGINS, is_named=False),
        ),
    ),
    wire.CancelMove: ExtendedCall(
        _cancel_move,
        "CancelMessageMoveTask",
        (
            QueueNeed(
                AclOperation.READ, _moved_source, "the source", ("CancelMessageMoveTask", *MOVED_BY), is_named=False
            ),
        ),
    ),
    wire.ListMoves: ExtendedCall(
        _moves, "ListMessageMoveTasks", (QueueNeed(AclOperation.DESCRIBE, _source, "the source"),)
    ),
}
"""What each call does, and the permissions that are checked before."""
