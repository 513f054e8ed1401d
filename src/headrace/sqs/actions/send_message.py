"""SendMessage and SendMessageBatch.

- Answered when every replica in sync has the messages on disk.
- A fifo queue needs a message group, and a de-duplication id, or derives one from the body if so configured; a
  duplicate is answered with the id and sequence number of the first message, and is not delivered.
- A standard queue accepts a group, too (fair queues), and returns it with the message.
- Of a batch, an entry that cannot be sent fails by itself. The others are sent together: all or none. In a fifo queue
  such an entry fails the whole batch, so that no message overtakes it.
- The HTTP header `X-Amzn-Trace-Id` is the trace header of messages that have none of their own.
"""

from collections.abc import Awaitable, Sequence
from hashlib import sha256

import msgspec

from headrace.coordinator.completion import finished
from headrace.model.unique_ids import new_id
from headrace.queues.api import OutgoingMessage, QueueInfo, Sent
from headrace.sqs import contents, errors
from headrace.sqs.actions.batches import BatchResultErrorEntry, checked, failed
from headrace.sqs.calls import ActionWork, SqsRequest, action, invalid_id, is_plain_id
from headrace.sqs.contents import MessageAttributeValue
from headrace.sqs.errors import SqsError
from headrace.sqs.needs import WRITE_QUEUE

_MOST_DELAY_S = 900


class SendMessage(msgspec.Struct):
    QueueUrl: str | None = None
    MessageBody: str | None = None
    DelaySeconds: int | None = None
    MessageAttributes: dict[str, MessageAttributeValue] | None = None
    MessageSystemAttributes: dict[str, MessageAttributeValue] | None = None
    MessageDeduplicationId: str | None = None
    MessageGroupId: str | None = None


class SendMessageResult(msgspec.Struct, omit_defaults=True):
    MD5OfMessageBody: str
    MessageId: str
    MD5OfMessageAttributes: str | None = None
    MD5OfMessageSystemAttributes: str | None = None
    SequenceNumber: str | None = None


@action(SendMessage, needs=(WRITE_QUEUE,))
def send_message(call: SqsRequest, request: SendMessage) -> Awaitable[msgspec.Struct | None]:
    info = call.find(request.QueueUrl)
    message = _outgoing(call, info, request, _size(request), _trace_of(call))

    def result(sent: Sequence[Sent]) -> SendMessageResult:
        return SendMessageResult(*_result_fields(info, request, message, sent[0]))

    return ActionWork(call.queues.begin_send(info.name, (message,)), result)


class SendMessageBatchRequestEntry(msgspec.Struct):
    Id: str | None = None
    MessageBody: str | None = None
    DelaySeconds: int | None = None
    MessageAttributes: dict[str, MessageAttributeValue] | None = None
    MessageSystemAttributes: dict[str, MessageAttributeValue] | None = None
    MessageDeduplicationId: str | None = None
    MessageGroupId: str | None = None


class SendMessageBatch(msgspec.Struct):
    QueueUrl: str | None = None
    Entries: list[SendMessageBatchRequestEntry] | None = None


class SendMessageBatchResultEntry(msgspec.Struct, omit_defaults=True):
    Id: str
    MD5OfMessageBody: str
    MessageId: str
    MD5OfMessageAttributes: str | None = None
    MD5OfMessageSystemAttributes: str | None = None
    SequenceNumber: str | None = None


class SendMessageBatchResult(msgspec.Struct, omit_defaults=True):
    Successful: list[SendMessageBatchResultEntry] | None = None
    Failed: list[BatchResultErrorEntry] | None = None


@action(SendMessageBatch, needs=(WRITE_QUEUE,))
def send_message_batch(call: SqsRequest, request: SendMessageBatch) -> Awaitable[msgspec.Struct | None]:
    info = call.find(request.QueueUrl)
    entries = checked(request.Entries, "SendMessage")
    sizes = [_size(entry) for _, entry in entries]
    total_bytes = sum(sizes)
    if total_bytes > contents.MAX_BYTES:
        raise errors.batch_error(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {contents.MAX_BYTES} bytes. You have sent {total_bytes} bytes.",
        )
    ready: list[tuple[str, SendMessageBatchRequestEntry, OutgoingMessage]] = []
    refused: list[BatchResultErrorEntry] = []
    is_fifo, trace = info.settings.is_fifo, _trace_of(call)
    for at, (entry_id, entry) in enumerate(entries):
        try:
            if not entry.MessageBody:
                raise errors.missing_parameter(f"SendMessageBatchRequestEntry.{at + 1}.MessageBody")
            if not is_fifo and sizes[at] > info.settings.max_message_bytes:
                raise _too_long("One or more parameters cannot be validated.", info)
            ready.append((entry_id, entry, _outgoing(call, info, entry, sizes[at], trace)))
        except SqsError as error:
            if is_fifo:
                raise _of_all(error) from None
            refused.append(failed(entry_id, error))

    def result(sent: Sequence[Sent]) -> SendMessageBatchResult:
        done = [
            SendMessageBatchResultEntry(entry_id, *_result_fields(info, entry, message, one))
            for (entry_id, entry, message), one in zip(ready, sent, strict=True)
        ]
        return SendMessageBatchResult(done or None, refused or None)

    if not ready:
        return ActionWork(finished([]), result)
    return ActionWork(call.queues.begin_send(info.name, [message for _, _, message in ready]), result)


Request = SendMessage | SendMessageBatchRequestEntry


def _outgoing(call: SqsRequest, info: QueueInfo, request: Request, size_bytes: int, trace: str) -> OutgoingMessage:
    """The message of a request; `SqsError` if the queue does not accept it. `trace` is the trace header of the whole
    request."""
    if not request.MessageBody:
        raise errors.missing_parameter("MessageBody")
    if size_bytes > info.settings.max_message_bytes:
        raise _too_long("One or more parameters are invalid.", info)
    body = contents.body_bytes(request.MessageBody)
    attributes, system = request.MessageAttributes, request.MessageSystemAttributes
    if attributes:
        contents.check_attributes(attributes)
    if system:
        contents.check_system_attributes(system)
    group, dedupe = request.MessageGroupId, request.MessageDeduplicationId
    if info.settings.is_fifo:
        _check_ids(info, request)
        if dedupe is None:
            dedupe = sha256(body).hexdigest()
    if group is not None or request.MessageDeduplicationId is not None:
        _check_values(info, group, request.MessageDeduplicationId)
    return OutgoingMessage(
        body,
        new_id(),
        delay_ms=None if request.DelaySeconds is None else _delay_ms(info, request.DelaySeconds),
        group=group,
        dedupe=dedupe,
        headers=contents.to_headers(attributes, _trace(trace, system), call.sender),
    )


def _too_long(what: str, info: QueueInfo) -> SqsError:
    return errors.invalid_parameter(
        f"{what} Reason: Message must be shorter than {info.settings.max_message_bytes} bytes."
    )


def _trace_of(call: SqsRequest) -> str:
    """The trace header of a request; empty if it has none that can be one of a message."""
    trace = call.origin.trace
    return trace if trace and contents.is_trace(trace) else ""


def _trace(of_request: str, system: contents.Attributes | None) -> str:
    """The trace header of a message: its own, or else that of the request."""
    if system and contents.TRACE_HEADER in system:
        return system[contents.TRACE_HEADER].StringValue or ""
    return of_request


def _check_ids(info: QueueInfo, request: Request) -> None:
    """Check the parameters that a fifo queue needs."""
    if request.MessageGroupId is None:
        raise errors.missing_parameter("MessageGroupId")
    if request.MessageDeduplicationId is None and not info.settings.dedupe_by_content:
        raise errors.invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly"
        )


def _of_all(error: SqsError) -> SqsError:
    """Of a whole batch AWS says that a parameter is missing by another code."""
    return errors.invalid_parameter(str(error)) if error.code == errors.MISSING_PARAMETER else error


def _check_values(info: QueueInfo, group: str | None, dedupe: str | None) -> None:
    if dedupe is not None and not info.settings.is_fifo:
        raise errors.invalid_value(
            dedupe, "MessageDeduplicationId", "The request include parameter that is not valid for this queue type."
        )
    for name, value in (("MessageGroupId", group), ("MessageDeduplicationId", dedupe)):
        if value is not None and not is_plain_id(value):
            raise invalid_id(value, name)


def _delay_ms(info: QueueInfo, delay_s: int) -> int | None:
    if not 0 <= delay_s <= _MOST_DELAY_S:
        raise errors.invalid_value(delay_s, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {_MOST_DELAY_S}.")
    if info.settings.is_fifo:
        if delay_s:
            raise errors.invalid_value(
                delay_s, "DelaySeconds", "The request include parameter that is not valid for this queue type."
            )
        return None
    return delay_s * 1000


def _size(request: Request) -> int:
    body = request.MessageBody or ""
    size_bytes = len(body) if body.isascii() else len(body.encode("utf-8", "surrogatepass"))
    return size_bytes + (contents.size_of(request.MessageAttributes) if request.MessageAttributes else 0)


def sequence_number(offset: int) -> str:
    return f"{offset:020d}"


def _result_fields(
    info: QueueInfo, request: Request, message: OutgoingMessage, sent: Sent
) -> tuple[str, str, str | None, str | None, str | None]:
    attributes, system = request.MessageAttributes, request.MessageSystemAttributes
    if not (attributes or system or info.settings.is_fifo):
        return contents.md5_of(message.body), sent.id, None, None, None
    return (
        contents.md5_of(message.body),
        sent.id,
        contents.md5_of_attributes(attributes) if attributes else None,
        contents.md5_of_attributes(system) if system else None,
        sequence_number(sent.offset) if info.settings.is_fifo else None,
    )
