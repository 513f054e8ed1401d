"""What an export has besides the schemas: settings, modes, and the highest ids. For `headrace schema export`.

These are not part of Confluent's API; their paths begin with `/headrace`.
"""

import msgspec

from headrace.schemas.operations.table import ALTER_REGISTRY, LIST_SUBJECTS, RegistryCall, in_turns, operation
from headrace.schemas.requests import MalformedRequest, RegistryReply, reply
from headrace.schemas.stored import StoredHighestIds, read_key
from headrace.schemas.subjects import context_of

MAX_CONTEXTS = 10_000


class SettingsRecord(msgspec.Struct, frozen=True):
    """A record of `_schemas` with a setting or a mode, as text."""

    key: str
    value: str


@operation("GET", "/headrace/settings", needs=LIST_SUBJECTS)
async def list_settings(call: RegistryCall) -> RegistryReply:
    """The settings and modes that the caller may see: global ones, of contexts, and of subjects."""
    found = []
    async for record in in_turns(call.machine.settings()):
        subject = read_key(record.key).subject
        if record.value is not None and (subject is None or call.shows(subject)):
            found.append(SettingsRecord(record.key.decode(), record.value.decode()))
    return reply(await call.page_of_bytes(sorted(found, key=lambda each: each.key), lambda each: each))


@operation("GET", "/headrace/highest-ids", needs=LIST_SUBJECTS)
async def show_highest_ids(call: RegistryCall) -> RegistryReply:
    """The highest id of each context, also of schemas that were deleted for good."""
    found = call.machine.highest_ids().items()
    return reply(StoredHighestIds({context: number for context, number in found if call.shows(f":{context}:")}))


@operation("PUT", "/headrace/highest-ids", needs=ALTER_REGISTRY)
async def raise_highest_ids(call: RegistryCall) -> RegistryReply:
    """Give out no id up to the given ones any more; lower ones than the highest here change nothing."""
    ids = call.request.read(StoredHighestIds).highest_ids
    if len(ids) > MAX_CONTEXTS or any(context_of(f":{each}:") != each for each in ids):
        raise MalformedRequest(f"highestIds has up to {MAX_CONTEXTS} contexts, which begin with a dot")
    await call.commit(lambda: call.machine.raise_highest_ids(ids))
    return reply(StoredHighestIds(ids))
