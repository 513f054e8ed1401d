"""DeleteMessage and DeleteMessageBatch: the message is done and never received again. One that is gone is fine."""

import msgspec

from headrace.model.errors import HeadraceError, InvalidReceipt
from headrace.sqs import errors
from headrace.sqs.actions.batches import BatchResultErrorEntry, checked, failed
from headrace.sqs.calls import Call, action, required
from headrace.sqs.errors import SqsError


class DeleteMessage(msgspec.Struct):
    QueueUrl: str | None = None
    ReceiptHandle: str | None = None


@action(DeleteMessage)
async def delete_message(call: Call, request: DeleteMessage) -> None:
    info = call.find(request.QueueUrl)
    receipt = required(request.ReceiptHandle, "ReceiptHandle")
    (failure,) = await call.queues.acknowledge(info.name, (receipt,))
    if failure is not None:
        raise failure


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


@action(DeleteMessageBatch)
async def delete_message_batch(call: Call, request: DeleteMessageBatch) -> DeleteMessageBatchResult:
    info = call.find(request.QueueUrl)
    entries = checked(request.Entries, "DeleteMessage")
    receipts = [required(entry.ReceiptHandle, "ReceiptHandle") for _, entry in entries]
    failures = await call.queues.acknowledge(info.name, receipts)
    done: list[DeleteMessageBatchResultEntry] = []
    refused: list[BatchResultErrorEntry] = []
    for (entry_id, _), receipt, failure in zip(entries, receipts, failures, strict=True):
        if failure is None:
            done.append(DeleteMessageBatchResultEntry(entry_id))
        else:
            refused.append(failed(entry_id, told_of_entry(failure, receipt, info.name)))
    return DeleteMessageBatchResult(done or None, refused or None)


def told_of_entry(failure: HeadraceError, receipt: str, queue: str) -> SqsError:
    if isinstance(failure, InvalidReceipt):
        return errors.receipt_is_invalid(receipt)
    return errors.told(failure, queue)
