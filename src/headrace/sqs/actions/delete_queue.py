"""DeleteQueue: deletes the queue with its messages. An unknown queue is an error, as with AWS."""

import msgspec

from headrace.sqs.calls import SqsRequest, action


class DeleteQueueRequest(msgspec.Struct):
    QueueUrl: str | None = None


@action(DeleteQueueRequest)
async def delete_queue(call: SqsRequest, request: DeleteQueueRequest) -> None:
    await call.queues.delete(call.find(request.QueueUrl).name)
