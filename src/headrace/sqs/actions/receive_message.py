"""ReceiveMessage.

- At most ten messages, each hidden from others for the visibility timeout. Waits up to 20 seconds for the first.
- Attributes are returned only if requested, and absent, not empty, where there are none.
- The receive count of a dead letter goes on from that in the queues before; that of a message which was moved back to
  its queue begins again from 1.
- A client that disconnects while it waits leases nothing, so that no message stays invisible for nothing.
"""

from collections.abc import Awaitable, Collection, Sequence

import msgspec

from headrace.coordinator.completion import PendingResult
from headrace.model.queued import is_dead_letter, read_origin, receives_before
from headrace.queues.api import QueueInfo, Received, ReceiveOptions
from headrace.sqs import contents, errors
from headrace.sqs.actions.send_message import sequence_number
from headrace.sqs.calls import ActionWork, SqsRequest, action, invalid_id, is_plain_id, within, within_bounds
from headrace.sqs.contents import MessageAttributeValue
from headrace.sqs.needs import READ_QUEUE

_MOST_MESSAGES = 10
_MOST_WAIT_S = 20
_MOST_VISIBILITY_S = 43_200
_SYSTEM_ATTRIBUTES = frozenset(
    {
        "All",
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
        "MessageDeduplicationId",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
        "SequenceNumber",
        # AWS documents this one for messages, too, and has nothing to show.
        "SqsManagedSseEnabled",
    }
)


class ReceiveMessage(msgspec.Struct):
    QueueUrl: str | None = None
    AttributeNames: list[str] | None = None
    MessageSystemAttributeNames: list[str] | None = None
    MessageAttributeNames: list[str] | None = None
    MaxNumberOfMessages: int | None = None
    VisibilityTimeout: int | None = None
    WaitTimeSeconds: int | None = None
    ReceiveRequestAttemptId: str | None = None


class SqsMessage(msgspec.Struct, omit_defaults=True):
    MessageId: str
    ReceiptHandle: str
    MD5OfBody: str
    Body: str
    Attributes: dict[str, str] | None = None
    MD5OfMessageAttributes: str | None = None
    MessageAttributes: dict[str, MessageAttributeValue] | None = None


class ReceiveMessageResult(msgspec.Struct, omit_defaults=True):
    Messages: list[SqsMessage] | None = None


@action(ReceiveMessage, needs=(READ_QUEUE,))
def receive_message(call: SqsRequest, request: ReceiveMessage) -> Awaitable[msgspec.Struct | None]:
    info = call.find(request.QueueUrl)
    names = {*(request.AttributeNames or ()), *(request.MessageSystemAttributeNames or ())}
    for name in names:
        if name not in _SYSTEM_ATTRIBUTES:
            raise errors.invalid_attribute_name(name)
    wait_s, visibility_s = request.WaitTimeSeconds, request.VisibilityTimeout
    within_bounds(wait_s, _MOST_WAIT_S, "WaitTimeSeconds")
    within_bounds(visibility_s, _MOST_VISIBILITY_S, "VisibilityTimeout")
    attempt_id = request.ReceiveRequestAttemptId if info.settings.is_fifo else None
    if attempt_id is not None and not is_plain_id(attempt_id):
        raise invalid_id(attempt_id, "ReceiveRequestAttemptId")
    options = ReceiveOptions(
        max_messages=within(request.MaxNumberOfMessages, 1, _MOST_MESSAGES, "MaxNumberOfMessages", default=1),
        wait_ms=None if wait_s is None else wait_s * 1000,
        visibility_ms=None if visibility_s is None else visibility_s * 1000,
        attempt_id=attempt_id,
    )
    asked_for = request.MessageAttributeNames or ()

    def result(received: Sequence[Received] | None) -> ReceiveMessageResult:
        return ReceiveMessageResult([_message(call, info, one, names, asked_for) for one in received or ()] or None)

    receiving = call.queues.begin_receive(info.name, options)
    # What is resolved without a coroutine does not wait for messages.
    if not isinstance(receiving, PendingResult) and (info.settings.receive_wait_ms if wait_s is None else wait_s):
        receiving = call.unless_gone(receiving)
    return ActionWork(receiving, result)


def _message(
    call: SqsRequest, info: QueueInfo, one: Received, names: Collection[str], attribute_names: Collection[str]
) -> SqsMessage:
    body = one.body.decode("utf-8", "replace")
    # Of a body that is no text, and cannot come by the SQS API, clients compare the sum of what they got.
    md5_of_body = contents.md5_of(body.encode() if "\ufffd" in body else one.body)
    message = SqsMessage(one.id, one.receipt, md5_of_body, body)
    if names or attribute_names:
        attributes, system = contents.from_headers(one.headers)
        if names:
            message.Attributes = _system_attributes(call, info, one, system, names) or None
        found = contents.selected(attributes, attribute_names)
        if found:
            message.MessageAttributes = found
            message.MD5OfMessageAttributes = contents.md5_of_attributes(found)
    return message


def _system_attributes(
    call: SqsRequest, info: QueueInfo, one: Received, system: dict[str, str], names: Collection[str]
) -> dict[str, str]:
    origin = read_origin(one.origin)
    shown = {
        "SenderId": system.get(contents.SENDER_ID, call.realm.account),
        "SentTimestamp": str(one.sent_at_ms),
        "ApproximateReceiveCount": str(one.attempt + receives_before(one.headers, origin)),
        "ApproximateFirstReceiveTimestamp": str(one.first_received_at_ms),
    }
    if info.settings.is_fifo:
        shown["SequenceNumber"] = sequence_number(one.offset)
    if one.group is not None:
        shown["MessageGroupId"] = one.group
    if one.dedupe is not None:
        shown["MessageDeduplicationId"] = one.dedupe
    if contents.TRACE_HEADER in system:
        shown[contents.TRACE_HEADER] = system[contents.TRACE_HEADER]
    if is_dead_letter(origin):
        shown["DeadLetterQueueSourceArn"] = call.realm.arn(str(origin.get("queue", "")))
    return shown if "All" in names else {name: shown[name] for name in names if name in shown}
