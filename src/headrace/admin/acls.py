"""Access control lists: listed, added, removed, and explained."""

from types import ModuleType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError, check_kafka
from headrace.admin.kafka_requests import ask
from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import ALTER_CLUSTER, DESCRIBE_CLUSTER, AdminReply, AdminRequest, route
from headrace.model.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from headrace.model.users import USER_TYPE, principal_of
from headrace.protocol.codec import make

_CREATE_ACLS, _DELETE_ACLS = 30, 31
_MAX_AT_A_TIME = 100

ResourceName = Literal["topic", "queue", "group", "cluster", "transactional_id", "user", "delegation_token"]
OperationName = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
]
_Text = Annotated[str, Meta(min_length=1, max_length=255)]


class AclRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule: a principal, from a host, may or may not do an operation on the resources that a pattern matches."""

    principal: _Text
    """`User:alice`, or `User:*` for everyone."""
    permission: Literal["allow", "deny"]
    operation: OperationName
    resource_type: ResourceName
    """A queue is a topic."""
    resource_name: _Text = CLUSTER_NAME
    """`*` stands for all."""
    pattern_type: Literal["literal", "prefixed"] = "literal"
    host: _Text = WILDCARD
    """An IP address, a network as 10.0.0.0/8, or `*`."""


def _rule(acl: Acl) -> AclRule:
    return AclRule(
        principal=acl.principal,
        permission=acl.permission.name.lower(),  # type: ignore[arg-type]
        operation=acl.operation.name.lower(),  # type: ignore[arg-type]
        resource_type=acl.resource_type.name.lower(),  # type: ignore[arg-type]
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type.name.lower(),  # type: ignore[arg-type]
        host=acl.host,
    )


def _kind(name: str) -> ResourceType:
    return ResourceType.TOPIC if name == "queue" else ResourceType[name.upper()]


class AclQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    principal: Annotated[str, Meta(max_length=255, description="Only rules about this principal.")] = ""


_ACLS: Listing[AclRule, AclRule] = Listing(AclRule, lambda each: each, name="principal")


@route("GET", "/acls", needs=DESCRIBE_CLUSTER, query=AclQuery, answer=Page[AclRule])
async def list_acls(request: AdminRequest) -> AdminReply:
    """The rules; `search` is about principals."""
    query = request.query(AclQuery)
    rules = [
        _rule(each)
        for each in sorted(request.services.security.image.acls)
        if query.principal in ("", each.principal, each.principal.removeprefix(f"{USER_TYPE}:"))
    ]
    return AdminReply(_ACLS.page(rules, query))


class AclRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: Annotated[list[AclRule], Meta(min_length=1, max_length=_MAX_AT_A_TIME)]


class AclCount(msgspec.Struct, frozen=True):
    rules: int


@route("POST", "/acls", needs=ALTER_CLUSTER, body=AclRules, answer=AclCount, is_audited=False)
async def create_acls(request: AdminRequest) -> AdminReply:
    """Add rules; those that exist are fine."""
    rules = request.read(AclRules).rules

    def build(schema: ModuleType) -> Any:
        creations: tuple[Any, ...] = tuple(
            make(
                schema.AclCreation,
                resource_type=_kind(each.resource_type),
                resource_name=each.resource_name,
                resource_pattern_type=PatternType[each.pattern_type.upper()],
                principal=each.principal,
                host=each.host,
                operation=AclOperation[each.operation.upper()],
                permission_type=Permission[each.permission.upper()],
            )
            for each in rules
        )
        return make(schema.CreateAclsRequest, creations=creations)

    for result in (await ask(request, _CREATE_ACLS, 3, build)).results:
        check_kafka(result.error_code, result.error_message)
    return AdminReply(AclCount(len(rules)), 201)


@route("DELETE", "/acls", needs=ALTER_CLUSTER, body=AclRules, answer=AclCount, is_audited=False)
async def delete_acls(request: AdminRequest) -> AdminReply:
    """Remove exactly these rules; those that do not exist are not counted."""
    rules = request.read(AclRules).rules

    def build(schema: ModuleType) -> Any:
        filters: tuple[Any, ...] = tuple(
            make(
                schema.DeleteAclsFilter,
                resource_type_filter=_kind(each.resource_type),
                resource_name_filter=each.resource_name,
                pattern_type_filter=PatternType[each.pattern_type.upper()],
                principal_filter=each.principal,
                host_filter=each.host,
                operation=AclOperation[each.operation.upper()],
                permission_type=Permission[each.permission.upper()],
            )
            for each in rules
        )
        return make(schema.DeleteAclsRequest, filters=filters)

    removed = 0
    for result in (await ask(request, _DELETE_ACLS, 3, build)).filter_results:
        check_kafka(result.error_code, result.error_message)
        removed += len(result.matching_acls)
    return AdminReply(AclCount(removed))


class ExplainQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: _Text
    operation: OperationName
    resource: ResourceName
    name: Annotated[str, Meta(max_length=255)] = CLUSTER_NAME
    host: Annotated[str, Meta(max_length=64)] = "127.0.0.1"


class Explanation(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str
    rule: AclRule | None
    """The rule that decides; null if none does."""


@route("GET", "/acls/explain", needs=DESCRIBE_CLUSTER, query=ExplainQuery, answer=Explanation)
async def explain(request: AdminRequest) -> AdminReply:
    """Whether a user may do an operation, and the rule that decides."""
    query, authorizer = request.query(ExplainQuery), request.services.security.authorizer
    if authorizer is None:
        return AdminReply(Explanation(True, "authorization is off: every client may do everything", None))
    kind = _kind(query.resource)
    if kind is not ResourceType.CLUSTER and not query.name:
        raise AdminError(400, "invalid_request", f"which {query.resource}? Give its name")
    principal = query.user if ":" in query.user else principal_of(query.user)
    resource = Resource(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else query.name)
    found = authorizer.decide(principal, query.host, AclOperation[query.operation.upper()], resource)
    return AdminReply(Explanation(found.is_allowed, found.reason, None if found.rule is None else _rule(found.rule)))
