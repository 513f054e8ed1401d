"""GetQueueAttributes and SetQueueAttributes.

Only the requested attributes are returned. The type of a queue cannot be changed.
"""

from collections.abc import Iterable, Mapping

import msgspec

from headrace.model.acls import AclOperation
from headrace.queues.api import QueueEdit, QueueInfo
from headrace.sqs import attributes, errors
from headrace.sqs.calls import QueueNeed, SqsRequest, action
from headrace.sqs.needs import DESCRIBE_QUEUE, write_to


class GetQueueAttributes(msgspec.Struct):
    QueueUrl: str | None = None
    AttributeNames: list[str] | None = None


class GetQueueAttributesResult(msgspec.Struct, omit_defaults=True):
    Attributes: dict[str, str] | None = None


@action(GetQueueAttributes, needs=(DESCRIBE_QUEUE,))
async def get_queue_attributes(call: SqsRequest, request: GetQueueAttributes) -> GetQueueAttributesResult:
    info = call.find(request.QueueUrl)
    wanted = request.AttributeNames or []
    attributes.check_names(wanted, info)
    counts = await call.queues.counts(info.name) if attributes.wants_counts(wanted) else None
    shown = attributes.show(call.realm, info, counts)
    if attributes.ALL not in wanted:
        shown = {name: shown[name] for name in wanted if name in shown}
    return GetQueueAttributesResult(shown or None)


class SetQueueAttributes(msgspec.Struct):
    QueueUrl: str | None = None
    Attributes: dict[str, str] | None = None


def _if_others_change(call: SqsRequest, request: SetQueueAttributes) -> Iterable[str]:
    is_only_policy = attributes.given_attributes(request.Attributes).keys() == {attributes.POLICY}
    return () if is_only_policy else (call.name(request.QueueUrl),)


def _if_policy_changes(call: SqsRequest, request: SetQueueAttributes) -> Iterable[str]:
    return (call.name(request.QueueUrl),) if attributes.changes_policy(request) else ()


@action(
    SetQueueAttributes,
    needs=(
        QueueNeed(AclOperation.ALTER_CONFIGS, _if_others_change, "the queue, unless only its policy changes"),
        QueueNeed(AclOperation.ALTER, _if_policy_changes, "the queue, if its policy changes"),
        write_to(attributes.dead_letter_targets, "the dead-letter queue, if it is set"),
    ),
)
async def set_queue_attributes(call: SqsRequest, request: SetQueueAttributes) -> None:
    info = call.find(request.QueueUrl)
    given = attributes.given_attributes(request.Attributes)
    if not given:
        raise errors.missing_parameter("Attribute.Name")
    _check_type(info, given)
    change = attributes.parse(call.realm, info.name, given, info)
    stored = {**change.stored, attributes.MODIFIED: str(call.realm.wall_ms() // 1000)}
    await call.queues.alter(info.name, QueueEdit(change.settings, stored))


def _check_type(info: QueueInfo, given: Mapping[str, str]) -> None:
    is_fifo = attributes.is_true(attributes.FIFO, given)
    if is_fifo is None:
        return
    if not info.settings.is_fifo:
        raise errors.invalid_attribute_name(attributes.FIFO)
    if not is_fifo:
        raise errors.invalid_attribute_value(attributes.FIFO, "Modifying queue type is not supported.")
