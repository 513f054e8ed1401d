"""DeleteQueue: the queue and everything in it. One that is not there is an error, as with AWS."""

import msgspec

from headrace.sqs.calls import Call, action


class DeleteQueue(msgspec.Struct):
    QueueUrl: str | None = None


@action(DeleteQueue)
async def delete_queue(call: Call, request: DeleteQueue) -> None:
    await call.queues.delete(call.find(request.QueueUrl).name)
