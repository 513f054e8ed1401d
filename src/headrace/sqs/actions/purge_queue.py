"""PurgeQueue: deletes all messages sent before. At most once a minute for a queue."""

import msgspec

from headrace.sqs.calls import SqsRequest, action
from headrace.sqs.needs import DELETE_QUEUE


class PurgeQueue(msgspec.Struct):
    QueueUrl: str | None = None


@action(PurgeQueue, needs=(DELETE_QUEUE,))
async def purge_queue(call: SqsRequest, request: PurgeQueue) -> None:
    await call.queues.purge(call.find(request.QueueUrl).name)
