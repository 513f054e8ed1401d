"""GetQueueAttributes and SetQueueAttributes.

Only what was asked for is told, and nothing at all where nothing was. The type of a queue cannot be changed.
"""

import msgspec

from headrace.queues.api import Edit
from headrace.sqs import attributes, errors
from headrace.sqs.calls import Call, action


class GetQueueAttributes(msgspec.Struct):
    QueueUrl: str | None = None
    AttributeNames: list[str] | None = None


class GetQueueAttributesResult(msgspec.Struct, omit_defaults=True):
    Attributes: dict[str, str] | None = None


@action(GetQueueAttributes)
async def get_queue_attributes(call: Call, request: GetQueueAttributes) -> GetQueueAttributesResult:
    info = call.find(request.QueueUrl)
    wanted = request.AttributeNames or []
    for name in wanted:
        if name != attributes.ALL and name not in attributes.KNOWN:
            raise errors.invalid_attribute_name(name)
    counts = await call.queues.counts(info.name) if attributes.wants_counts(wanted) else None
    shown = attributes.show(call.realm, info, counts)
    if attributes.ALL not in wanted:
        shown = {name: shown[name] for name in wanted if name in shown}
    return GetQueueAttributesResult(shown or None)


class SetQueueAttributes(msgspec.Struct):
    QueueUrl: str | None = None
    Attributes: dict[str, str] | None = None


@action(SetQueueAttributes)
async def set_queue_attributes(call: Call, request: SetQueueAttributes) -> None:
    info = call.find(request.QueueUrl)
    given = {key.strip(): value for key, value in (request.Attributes or {}).items()}
    if not given:
        raise errors.missing_parameter("Attributes")
    if "FifoQueue" in given and (given["FifoQueue"] == "true") != info.settings.is_fifo:
        raise errors.invalid_attribute_name("FifoQueue")
    change = attributes.parse(call.realm, info.name, given)
    kept = {**change.kept, attributes.MODIFIED: str(call.realm.wall_ms() // 1000)}
    await call.queues.alter(info.name, Edit(change.settings, kept))
