"""Tags of a schema: a new version with others.

Tags are stored in the metadata of the version, by the path of what they belong to, and not in the text of the schema:
so it works alike for all types, and the text that others compare stays as it is.
"""

from typing import Any

import msgspec

from headrace.schemas.errors import InvalidVersion
from headrace.schemas.operations.answers import full_answer
from headrace.schemas.operations.table import WRITE_SUBJECT, RegistryCall, operation
from headrace.schemas.operations.versions import register_version
from headrace.schemas.requests import RegistryReply, reply


class TaggedEntity(msgspec.Struct, rename="camel"):
    entity_path: str
    entity_type: str = ""


class TagsOfEntity(msgspec.Struct, rename="camel"):
    schema_entity: TaggedEntity
    tags: list[str]


class TagBody(msgspec.Struct, rename="camel"):
    new_version: int | None = None
    tags_to_add: list[TagsOfEntity] = []
    tags_to_remove: list[TagsOfEntity] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    rules_to_merge: dict[str, Any] | None = None
    rules_to_remove: list[str] = []


@operation("POST", "/subjects/{subject}/versions/{version}/tags", needs=WRITE_SUBJECT)
async def change_tags(call: RegistryCall) -> RegistryReply:
    """Register a version with changed tags, metadata or rules."""
    body, found = call.request.read(TagBody), call.machine.version(call.subject, call.version)
    following = max(call.machine.versions(call.subject, deleted=True)) + 1
    if body.new_version is not None and body.new_version not in (-1, following):
        raise InvalidVersion(f"The new version is {following}, not {body.new_version}.")
    changed = msgspec.structs.replace(
        found,
        id=0,
        version=0,
        md5=None,
        metadata=_tagged(found.metadata if body.metadata is None else body.metadata, body),
        rule_set=_with_rules(found.rule_set if body.rule_set is None else body.rule_set, body),
    )
    return reply(full_answer(await register_version(call, changed)))


def _tagged(metadata: dict[str, Any] | None, body: TagBody) -> dict[str, Any] | None:
    tags = {path: list(each) for path, each in ((metadata or {}).get("tags") or {}).items()}
    for entity in body.tags_to_add:
        known = tags.setdefault(entity.schema_entity.entity_path, [])
        known += [tag for tag in dict.fromkeys(entity.tags) if tag not in known]
    for entity in body.tags_to_remove:
        path = entity.schema_entity.entity_path
        tags[path] = [tag for tag in tags.get(path, ()) if tag not in entity.tags]
    tags = {path: each for path, each in tags.items() if each}
    others = {key: value for key, value in (metadata or {}).items() if key != "tags"}
    return {**others, **({"tags": tags} if tags else {})} or None


def _with_rules(rules: dict[str, Any] | None, body: TagBody) -> dict[str, Any] | None:
    """Rules without those to remove, and with those to merge in place of others of their names."""
    found = {}
    for kind in dict.fromkeys((*(rules or {}), *(body.rules_to_merge or {}))):
        merged = {_name(each): each for each in (rules or {}).get(kind) or ()}
        merged |= {_name(each): each for each in (body.rules_to_merge or {}).get(kind) or ()}
        found[kind] = [each for name, each in merged.items() if name not in body.rules_to_remove]
    return {kind: each for kind, each in found.items() if each} or None


def _name(rule: Any) -> str:
    return str(rule.get("name", "")) if isinstance(rule, dict) else ""
