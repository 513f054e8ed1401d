"""DeleteMessage and DeleteMessageBatch: the message is never received again. Deleting it twice is no error."""

from collections.abc import Awaitable, Sequence

import msgspec

from headrace.coordinator.completion import finished
from headrace.model.errors import HeadraceError, InvalidReceipt, NotInFlight
from headrace.queues.api import Failures, QueueInfo
from headrace.sqs import errors
from headrace.sqs.actions.batches import BatchResultErrorEntry, checked, failed
from headrace.sqs.calls import ActionWork, SqsRequest, action, required
from headrace.sqs.errors import SqsError
from headrace.sqs.needs import READ_QUEUE


class DeleteMessage(msgspec.Struct):
    QueueUrl: str | None = None
    ReceiptHandle: str | None = None


@action(DeleteMessage, needs=(READ_QUEUE,))
def delete_message(call: SqsRequest, request: DeleteMessage) -> Awaitable[msgspec.Struct | None]:
    info = call.find(request.QueueUrl)
    receipt = required(request.ReceiptHandle, "ReceiptHandle")

    def result(failures: Failures) -> None:
        if (failure := failures[0]) is not None:
            raise _receipt_error(failure, receipt, info.name)

    return ActionWork(_acknowledge(call, info, (receipt,)), result)


class DeleteMessageBatchRequestEntry(msgspec.Struct):
    Id: str | None = None
    ReceiptHandle: str | None = None


class DeleteMessageBatch(msgspec.Struct):
    QueueUrl: str | None = None
    Entries: list[DeleteMessageBatchRequestEntry] | None = None


class DeleteMessageBatchResultEntry(msgspec.Struct):
    Id: str


class DeleteMessageBatchResult(msgspec.Struct, omit_defaults=True):
    Successful: list[DeleteMessageBatchResultEntry] | None = None
    Failed: list[BatchResultErrorEntry] | None = None


@action(DeleteMessageBatch, needs=(READ_QUEUE,))
def delete_message_batch(call: SqsRequest, request: DeleteMessageBatch) -> Awaitable[msgspec.Struct | None]:
    info = call.find(request.QueueUrl)
    entries = checked(request.Entries, "DeleteMessage")
    wanted: list[tuple[str, str]] = []
    refused: list[BatchResultErrorEntry] = []
    for entry_id, entry in entries:
        try:
            wanted.append((entry_id, required(entry.ReceiptHandle, "ReceiptHandle")))
        except SqsError as error:
            refused.append(failed(entry_id, error))

    def result(failures: Failures) -> DeleteMessageBatchResult:
        done: list[DeleteMessageBatchResultEntry] = []
        for (entry_id, receipt), failure in zip(wanted, failures, strict=True):
            if failure is None:
                done.append(DeleteMessageBatchResultEntry(entry_id))
            else:
                refused.append(failed(entry_id, _receipt_error(failure, receipt, info.name)))
        return DeleteMessageBatchResult(done or None, refused or None)

    if not wanted:
        return ActionWork(finished([]), result)
    return ActionWork(_acknowledge(call, info, [receipt for _, receipt in wanted]), result)


def _acknowledge(call: SqsRequest, info: QueueInfo, receipts: Sequence[str]) -> Awaitable[Failures]:
    """As with AWS, any receipt that a message had will do, also one of which the time is over; not in a fifo queue, for
    another receiver may have the group."""
    return call.queues.begin_acknowledge(info.name, receipts, any_receipt=not info.settings.is_fifo)


def _receipt_error(failure: HeadraceError, receipt: str, queue: str) -> SqsError:
    """The error for a receipt that the queue refused."""
    if isinstance(failure, InvalidReceipt):
        return errors.receipt_is_invalid(receipt)
    if isinstance(failure, NotInFlight):
        return errors.receipt_has_expired(receipt)
    return errors.sqs_error(failure, queue)
