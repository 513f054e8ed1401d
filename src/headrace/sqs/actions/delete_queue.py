"""DeleteQueue: deletes the queue with its messages. An unknown queue is an error, as with AWS."""

import msgspec

from headrace.sqs.calls import SqsRequest, action
from headrace.sqs.needs import DELETE_QUEUE


class DeleteQueueRequest(msgspec.Struct):
    QueueUrl: str | None = None


@action(DeleteQueueRequest, needs=(DELETE_QUEUE,))
async def delete_queue(call: SqsRequest, request: DeleteQueueRequest) -> None:
    await call.queues.delete(call.find(request.QueueUrl).name)
