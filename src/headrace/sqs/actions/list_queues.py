"""ListQueues, GetQueueUrl and ListDeadLetterSourceQueues: which queues there are, by their URLs.

Without MaxResults at most 1,000 are told, and no token for more, as with AWS.
"""

import msgspec

from headrace.model.errors import UnknownQueue
from headrace.sqs import errors
from headrace.sqs.calls import Call, action, page, required


class ListQueues(msgspec.Struct):
    QueueNamePrefix: str | None = None
    NextToken: str | None = None
    MaxResults: int | None = None


class ListQueuesResult(msgspec.Struct, omit_defaults=True):
    QueueUrls: list[str] | None = None
    NextToken: str | None = None


@action(ListQueues)
async def list_queues(call: Call, request: ListQueues) -> ListQueuesResult:
    names = [info.name for info in call.queues.queues(request.QueueNamePrefix or "")]
    shown, token = page(names, request.MaxResults, request.NextToken)
    return ListQueuesResult([call.url(name) for name in shown] or None, token)


class GetQueueUrl(msgspec.Struct):
    QueueName: str | None = None
    QueueOwnerAWSAccountId: str | None = None


class GetQueueUrlResult(msgspec.Struct):
    QueueUrl: str


@action(GetQueueUrl)
async def get_queue_url(call: Call, request: GetQueueUrl) -> GetQueueUrlResult:
    name = required(request.QueueName, "QueueName")
    if request.QueueOwnerAWSAccountId not in (None, "", call.realm.account):
        raise errors.queue_does_not_exist()
    try:
        call.queues.find(name)
    except UnknownQueue:
        raise errors.queue_does_not_exist() from None
    return GetQueueUrlResult(call.url(name))


class ListDeadLetterSourceQueues(msgspec.Struct):
    QueueUrl: str | None = None
    NextToken: str | None = None
    MaxResults: int | None = None


class ListDeadLetterSourceQueuesResult(msgspec.Struct, omit_defaults=True):
    queueUrls: list[str]
    NextToken: str | None = None


@action(ListDeadLetterSourceQueues)
async def list_dead_letter_source_queues(
    call: Call, request: ListDeadLetterSourceQueues
) -> ListDeadLetterSourceQueuesResult:
    target = call.find(request.QueueUrl).name
    sources = [info.name for info in call.queues.queues() if info.settings.dead_letter == target]
    shown, token = page(sources, request.MaxResults, request.NextToken)
    return ListDeadLetterSourceQueuesResult([call.url(name) for name in shown], token)
