"""ChangeMessageVisibility and ChangeMessageVisibilityBatch: how long from now on a message is hidden; 0: it is not."""

from collections.abc import Sequence

import msgspec

from headrace.model.errors import HeadraceError, InvalidReceipt
from headrace.queues.api import Failures, QueueInfo
from headrace.sqs import errors
from headrace.sqs.actions.batches import BatchResultErrorEntry, checked, failed
from headrace.sqs.calls import Call, action, required
from headrace.sqs.errors import SqsError

_MOST_S = 43_200


class ChangeMessageVisibility(msgspec.Struct):
    QueueUrl: str | None = None
    ReceiptHandle: str | None = None
    VisibilityTimeout: int | None = None


@action(ChangeMessageVisibility)
async def change_message_visibility(call: Call, request: ChangeMessageVisibility) -> None:
    info = call.find(request.QueueUrl)
    receipt = required(request.ReceiptHandle, "ReceiptHandle")
    (failure,) = await _extend(call, info, ((receipt, _visibility_ms(request.VisibilityTimeout)),))
    if failure is not None:
        raise failure


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


@action(ChangeMessageVisibilityBatch)
async def change_message_visibility_batch(
    call: Call, request: ChangeMessageVisibilityBatch
) -> ChangeMessageVisibilityBatchResult:
    info = call.find(request.QueueUrl)
    entries = checked(request.Entries, "ChangeMessageVisibility")
    wanted: list[tuple[str, str, int]] = []
    refused: list[BatchResultErrorEntry] = []
    for entry_id, entry in entries:
        receipt = required(entry.ReceiptHandle, "ReceiptHandle")
        try:
            wanted.append((entry_id, receipt, _visibility_ms(entry.VisibilityTimeout)))
        except SqsError as error:
            refused.append(failed(entry_id, error))
    pairs = [(receipt, visibility_ms) for _, receipt, visibility_ms in wanted]
    failures = await _extend(call, info, pairs) if pairs else []
    done: list[ChangeMessageVisibilityBatchResultEntry] = []
    for (entry_id, receipt, _), failure in zip(wanted, failures, strict=True):
        if failure is None:
            done.append(ChangeMessageVisibilityBatchResultEntry(entry_id))
        else:
            refused.append(failed(entry_id, _told_of(failure, receipt, info.name)))
    return ChangeMessageVisibilityBatchResult(done or None, refused or None)


async def _extend(call: Call, info: QueueInfo, wanted: Sequence[tuple[str, int]]) -> Failures:
    """As with AWS, an older receipt of a message that is in flight will do; not in a fifo queue."""
    return await call.queues.extend(info.name, wanted, any_receipt=not info.settings.is_fifo)


def _told_of(failure: HeadraceError, receipt: str, queue: str) -> SqsError:
    return errors.receipt_is_invalid(receipt) if isinstance(failure, InvalidReceipt) else errors.told(failure, queue)


def _visibility_ms(visibility_s: int | None) -> int:
    if visibility_s is None:
        raise errors.missing_parameter("VisibilityTimeout")
    if not 0 <= visibility_s <= _MOST_S:
        raise errors.invalid_value(
            visibility_s, "VisibilityTimeout", f"VisibilityTimeout must be an integer between 0 and {_MOST_S}."
        )
    return visibility_s * 1000
