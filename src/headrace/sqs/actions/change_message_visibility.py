"""ChangeMessageVisibility and ChangeMessageVisibilityBatch: a new visibility timeout from now on; 0 ends it."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.model.errors import HeadraceError, InvalidReceipt, LeaseTooLong, NotInFlight
from headrace.queues.api import Failures, QueueInfo
from headrace.sqs import errors
from headrace.sqs.actions.batches import BatchResultErrorEntry, checked, failed
from headrace.sqs.calls import SqsRequest, action, required
from headrace.sqs.errors import SqsError
from headrace.sqs.needs import READ_QUEUE

_MOST_S = 43_200


class _VisibilityChange(NamedTuple):
    receipt: str
    visibility_s: int


class ChangeMessageVisibility(msgspec.Struct):
    QueueUrl: str | None = None
    ReceiptHandle: str | None = None
    VisibilityTimeout: int | None = None


@action(ChangeMessageVisibility, needs=(READ_QUEUE,))
async def change_message_visibility(call: SqsRequest, request: ChangeMessageVisibility) -> None:
    info = call.find(request.QueueUrl)
    receipt = required(request.ReceiptHandle, "ReceiptHandle")
    wanted = _VisibilityChange(receipt, _visibility_s(request.VisibilityTimeout, "VisibilityTimeout"))
    (failure,) = await _extend(call, info, (wanted,))
    if failure is not None:
        raise _receipt_error(failure, wanted, info.name)


class ChangeMessageVisibilityBatchRequestEntry(msgspec.Struct):
    Id: str | None = None
    ReceiptHandle: str | None = None
    VisibilityTimeout: int | None = None


class ChangeMessageVisibilityBatch(msgspec.Struct):
    QueueUrl: str | None = None
    Entries: list[ChangeMessageVisibilityBatchRequestEntry] | None = None


class ChangeMessageVisibilityBatchResultEntry(msgspec.Struct):
    Id: str


class ChangeMessageVisibilityBatchResult(msgspec.Struct, omit_defaults=True):
    Successful: list[ChangeMessageVisibilityBatchResultEntry] | None = None
    Failed: list[BatchResultErrorEntry] | None = None


@action(ChangeMessageVisibilityBatch, needs=(READ_QUEUE,))
async def change_message_visibility_batch(
    call: SqsRequest, request: ChangeMessageVisibilityBatch
) -> ChangeMessageVisibilityBatchResult:
    info = call.find(request.QueueUrl)
    entries = checked(request.Entries, "ChangeMessageVisibility")
    wanted: list[tuple[str, _VisibilityChange]] = []
    refused: list[BatchResultErrorEntry] = []
    for number, (entry_id, entry) in enumerate(entries, 1):
        try:
            receipt = required(entry.ReceiptHandle, "ReceiptHandle")
            parameter = f"ChangeMessageVisibilityBatchRequestEntry.{number}.VisibilityTimeout"
            wanted.append((entry_id, _VisibilityChange(receipt, _visibility_s(entry.VisibilityTimeout, parameter))))
        except SqsError as error:
            refused.append(failed(entry_id, error))
    failures = await _extend(call, info, [one for _, one in wanted]) if wanted else []
    done: list[ChangeMessageVisibilityBatchResultEntry] = []
    for (entry_id, one), failure in zip(wanted, failures, strict=True):
        if failure is None:
            done.append(ChangeMessageVisibilityBatchResultEntry(entry_id))
        else:
            refused.append(failed(entry_id, _receipt_error(failure, one, info.name)))
    return ChangeMessageVisibilityBatchResult(done or None, refused or None)


async def _extend(call: SqsRequest, info: QueueInfo, wanted: Sequence[_VisibilityChange]) -> Failures:
    """As with AWS, an older receipt of a message in flight is accepted, except in a fifo queue."""
    pairs = [(receipt, visibility_s * 1000) for receipt, visibility_s in wanted]
    return await call.queues.extend(info.name, pairs, any_receipt=not info.settings.is_fifo)


def _receipt_error(failure: HeadraceError, wanted: _VisibilityChange, queue: str) -> SqsError:
    match failure:
        case InvalidReceipt():
            return errors.receipt_is_invalid(wanted.receipt)
        case NotInFlight():
            return errors.visibility_cannot_change(wanted.receipt)
        case LeaseTooLong():
            return errors.visibility_too_long(wanted.visibility_s)
        case _:
            return errors.sqs_error(failure, queue)


def _visibility_s(visibility_s: int | None, parameter: str) -> int:
    """`parameter` is what it is called where it is missing."""
    if visibility_s is None:
        raise errors.missing_parameter(parameter)
    if not 0 <= visibility_s <= _MOST_S:
        raise errors.invalid_value(
            visibility_s, "VisibilityTimeout", f"VisibilityTimeout must be an integer between 0 and {_MOST_S}."
        )
    return visibility_s
