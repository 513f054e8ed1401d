"""The ACLs and quotas of a source cluster, by Kafka's own APIs, and within bounds: the source may be anyone's.

An answer that is too long, or has too many entries, is refused as a whole: a part of it may lack the DENY rules.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.mirror.acl_plan import SourceAcls
from headrace.mirror.quota_plan import SourceQuotas, read_quotas
from headrace.mirror.source import SourceCluster
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import SourceUnavailable
from headrace.model.links import MAX_COPIED, MAX_TEXT_CHARS
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.security.authorizer import problem_with

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_DESCRIBE_ACLS, _DESCRIBE_ACLS_VERSION = 29, 2
_DESCRIBE_QUOTAS, _DESCRIBE_QUOTAS_VERSION = 48, 1
_ANY = 1
_MAX_SHOWN_CHARS = 100


async def acls_of(source: SourceCluster) -> SourceAcls:
    """All ACLs of a source cluster. Raises `SourceUnavailable` with the reason."""
    answer = await source.ask(_acls_request(), MAX_ANSWER_BYTES)
    _check(answer, "ACLs", "DESCRIBE on the cluster")
    return read_acls(answer.resources)


async def quotas_of(source: SourceCluster, prefix: str) -> SourceQuotas:
    """All quotas of a source cluster, by entities as they are here. Raises `SourceUnavailable` with the reason."""
    schema = request_schema(_DESCRIBE_QUOTAS, _DESCRIBE_QUOTAS_VERSION)
    answer = await source.ask(make(schema.DescribeClientQuotasRequest, components=(), strict=False), MAX_ANSWER_BYTES)
    _check(answer, "quotas", "DESCRIBE_CONFIGS on the cluster")
    entries = answer.entries or ()
    if len(entries) > MAX_COPIED:
        raise SourceUnavailable(f"the source has quotas of {len(entries):,} entities, and {MAX_COPIED:,} is the most")
    return read_quotas(
        (
            (
                [(each.entity_type, each.entity_name) for each in entry.entity],
                [(each.key, float(each.value)) for each in entry.values],
            )
            for entry in entries
        ),
        prefix,
    )


def read_acls(resources: Any) -> SourceAcls:
    """The ACLs of an answer to DescribeAcls."""
    count = sum(len(resource.acls) for resource in resources)
    if count > MAX_COPIED:
        raise SourceUnavailable(f"the source has {count:,} ACLs, and a link copies {MAX_COPIED:,} at most")
    found: set[Acl] = set()
    unusable: dict[bool, list[str]] = {True: [], False: []}
    for resource in resources:
        for rule in resource.acls:
            try:
                found.add(_acl(resource, rule))
            except ValueError as problem:
                unusable[rule.permission_type != Permission.ALLOW].append(str(problem))
    return SourceAcls(frozenset(found), tuple(unusable[True]), tuple(unusable[False]))


def _acls_request() -> Any:
    return make(
        request_schema(_DESCRIBE_ACLS, _DESCRIBE_ACLS_VERSION).DescribeAclsRequest,
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )


def _acl(resource: Any, rule: Any) -> Acl:
    """The rule; `ValueError` with the reason if it cannot be stored here."""
    for text in (resource.resource_name, rule.principal, rule.host):
        if len(text) > MAX_TEXT_CHARS:
            raise ValueError(f"{text[:_MAX_SHOWN_CHARS]!r}… has more than {MAX_TEXT_CHARS} characters")
    acl = Acl(
        ResourceType(resource.resource_type),
        PatternType(resource.pattern_type),
        resource.resource_name,
        rule.principal,
        rule.host,
        AclOperation(rule.operation),
        Permission(rule.permission_type),
    )
    if problem := problem_with(acl):
        raise ValueError(problem[: 2 * _MAX_SHOWN_CHARS])
    return acl


def _check(answer: Any, what: str, permission: str) -> None:
    code = answer.error_code
    if code is ErrorCode.none:
        return
    if code is ErrorCode.cluster_authorization_failed:
        why = f"the source does not let the link see its {what}: allow its user {permission} there"
    elif code is ErrorCode.security_disabled:
        why = "the source has no ACLs, since authorization is off there: what was copied before stays"
    else:
        why = f"the source does not say its {what}: {code.name} {str(answer.error_message or '')[:_MAX_SHOWN_CHARS]}"
    raise SourceUnavailable(why.rstrip())
