"""ListQueues, GetQueueUrl and ListDeadLetterSourceQueues: the URLs of queues.

Without MaxResults at most 1,000 are listed, and no token for more, as with AWS. A token is valid for a list of the
same queues only.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence

import msgspec

from headrace.model.errors import UnknownQueue
from headrace.sqs import errors, redrive
from headrace.sqs.calls import SqsRequest, action
from headrace.sqs.needs import DESCRIBE_LISTED, DESCRIBE_QUEUE, DESCRIBE_QUEUE_NAME

_MOST_RESULTS = 1000


class _Token(msgspec.Struct, array_like=True):
    about: str
    """The prefix, or the dead-letter queue."""
    last: str
    """The last name listed."""


class ListQueuesRequest(msgspec.Struct):
    QueueNamePrefix: str | None = None
    NextToken: str | None = None
    MaxResults: int | None = None


class ListQueuesResult(msgspec.Struct, omit_defaults=True):
    QueueUrls: list[str] | None = None
    NextToken: str | None = None


@action(ListQueuesRequest, needs=(DESCRIBE_LISTED,))
async def list_queues(call: SqsRequest, request: ListQueuesRequest) -> ListQueuesResult:
    prefix = request.QueueNamePrefix or ""
    names = [info.name for info in call.queues.queues(prefix) if call.sees(info)]
    shown, token = _page(names, prefix, request.MaxResults, request.NextToken)
    return ListQueuesResult([call.url(name) for name in shown] or None, token)


class GetQueueUrl(msgspec.Struct):
    QueueName: str | None = None
    QueueOwnerAWSAccountId: str | None = None


class GetQueueUrlResult(msgspec.Struct):
    QueueUrl: str


@action(GetQueueUrl, needs=(DESCRIBE_QUEUE_NAME,))
async def get_queue_url(call: SqsRequest, request: GetQueueUrl) -> GetQueueUrlResult:
    name = request.QueueName
    if not name:
        raise errors.missing_queue_name()
    if request.QueueOwnerAWSAccountId not in (None, "", call.realm.account):
        raise errors.queue_does_not_exist()
    try:
        call.queues.find(name)
    except UnknownQueue as error:
        raise errors.queue_does_not_exist(error) from None
    return GetQueueUrlResult(call.url(name))


class ListDeadLetterSourceQueues(msgspec.Struct):
    QueueUrl: str | None = None
    NextToken: str | None = None
    MaxResults: int | None = None


class ListDeadLetterSourceQueuesResult(msgspec.Struct, omit_defaults=True):
    queueUrls: list[str]
    NextToken: str | None = None


@action(ListDeadLetterSourceQueues, needs=(DESCRIBE_QUEUE, DESCRIBE_LISTED))
async def list_dead_letter_source_queues(
    call: SqsRequest, request: ListDeadLetterSourceQueues
) -> ListDeadLetterSourceQueuesResult:
    target = call.find(request.QueueUrl).name
    policies = [(info, redrive.policy_of(info)) for info in call.queues.queues()]
    sources = [
        info.name for info, policy in policies if policy is not None and policy.target == target and call.sees(info)
    ]
    shown, token = _page(sources, target, request.MaxResults, request.NextToken)
    return ListDeadLetterSourceQueuesResult([call.url(name) for name in shown], token)


def _page(
    names: Sequence[str], about: str, max_results: int | None, token: str | None
) -> tuple[Sequence[str], str | None]:
    """At most so many of `names`, which are in order, after those that a token says were listed; and the next token."""
    if max_results is not None and not 1 <= max_results <= _MOST_RESULTS:
        raise errors.invalid_parameter(
            f"Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and "
            f"{_MOST_RESULTS}."
        )
    if token:
        if max_results is None:
            raise errors.invalid_parameter(
                "MaxResults is a mandatory parameter when you provide a value for NextToken."
            )
        last = _last_listed(token, about)
        names = [name for name in names if name > last]
    shown = names[: max_results or _MOST_RESULTS]
    if max_results is None or len(names) == len(shown):
        return shown, None
    return shown, urlsafe_b64encode(msgspec.json.encode(_Token(about, shown[-1]))).decode("ascii")


def _last_listed(token: str, about: str) -> str:
    try:
        found = msgspec.json.decode(b64decode(token, altchars="-_", validate=True), type=_Token)
    except (msgspec.MsgspecError, UnicodeError, Base64Error, ValueError):
        raise errors.invalid_parameter("Invalid NextToken value.") from None
    if found.about != about:
        raise errors.invalid_parameter(
            "Invalid NextToken value. If you are passing in NextToken, you must not change the other request "
            "parameters."
        )
    return found.last
