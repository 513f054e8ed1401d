"""The login and the permissions of `headrace doctor`: why a broker refuses a client, in words."""

from collections.abc import Iterator
from contextlib import closing
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.cli.acl.rules import adding
from headrace.cli.doctor.findings import Finding, ok, problem, warning
from headrace.config.credentials import Credentials
from headrace.model.acls import AclOperation, Resource, ResourceType
from headrace.model.image import Endpoint
from headrace.protocol.codec import make
from headrace.wire import Timeouts, Unsupported, WireError
from headrace.wire.connection import WireConnection
from headrace.wire.security import WireSecurity, handshake

_METADATA, _DESCRIBE_GROUPS, _DESCRIBE_CLUSTER = 3, 15, 60
_NOT_GIVEN = -(2**31)
LOG_IN = "Set HEADRACE_USER and HEADRACE_PASSWORD, or give --profile."


def opened(where: Endpoint, security: WireSecurity, timeout_s: float, *, authenticates: bool = True) -> WireConnection:
    return WireConnection(
        where,
        client_id="headrace-doctor",
        timeouts=Timeouts(timeout_s, timeout_s, 0.0),
        security=security,
        authenticates=authenticates,
    )


def check_login(where: Endpoint, security: WireSecurity, timeout_s: float) -> Iterator[Finding]:
    """Log in, if there are credentials for it. The last finding is a problem if that fails. Raises `WireError`."""
    credentials = security.credentials
    if not credentials.uses_sasl:
        return
    with closing(opened(where, security, timeout_s, authenticates=False)) as connection:
        answer = handshake(connection, credentials.mechanism)
    mechanism = credentials.mechanism
    if answer.error_code is ErrorCode.unsupported_sasl_mechanism:
        offered = [str(each) for each in answer.mechanisms]
        yield problem(
            f"{where} does not offer the mechanism {mechanism}, only {', '.join(offered) or 'none'}.",
            f"Set HEADRACE_SASL_MECHANISM to {' or '.join(offered) or 'another one'}, or enable {mechanism} on the "
            "broker: sasl.enabled.mechanisms.",
        )
        return
    if answer.error_code is ErrorCode.illegal_sasl_state:
        yield problem(
            f"{where} does not authenticate its clients, and you give a user.",
            "Leave out HEADRACE_USER and HEADRACE_PASSWORD (or user in the profile), or use a port with SASL.",
        )
        return
    who = f"the user {credentials.user}" if credentials.user else "the token"
    try:
        opened(where, security, timeout_s).close()
    except WireError as error:
        yield problem(f"{where} does not let in {who} with {mechanism}: {_short(error)}.", _login_advice(credentials))
        return
    yield ok(f"The login of {who} with {mechanism} succeeds.")


def _short(error: WireError) -> str:
    return str(error).rpartition(": ")[2].rstrip(".")


def _login_advice(credentials: Credentials) -> str:
    if credentials.token is not None:
        return "Check that the token has not expired, and that its issuer and audience are those of the broker."
    return (
        f"Check the name and the password. `headrace user list` shows whether {credentials.user} exists, with "
        f"{credentials.mechanism}; `headrace user passwd {credentials.user}` sets another password."
    )


def expects_login(error: WireError) -> Finding:
    text = str(error)
    return problem(f"{text[:1].upper()}{text[1:]}.", LOG_IN)


def refused_certificate(where: Endpoint) -> Finding:
    return problem(
        f"{where} requires a certificate of the client, and refuses yours or has got none.",
        "Give one that an authority of the broker (tls.ca.file) has issued: HEADRACE_CERT_FILE and HEADRACE_KEY_FILE.",
    )


def check_permissions(
    connection: WireConnection, credentials: Credentials, topic: str | None, group: str | None
) -> Iterator[Finding]:
    """What ACLs allow the client, on a topic and a group, or in general."""
    who = credentials.user or "this client"
    user = credentials.user or "NAME"
    if topic is not None:
        yield _topic_finding(connection, who, user, topic)
    if group is not None:
        yield _group_finding(connection, who, user, group)


def sees_nothing(connection: WireConnection, credentials: Credentials, metadata: Any) -> Iterator[Finding]:
    """A warning for a client that authenticates and has no permission on anything that exists."""
    if metadata.topics or not (credentials.uses_sasl or credentials.cert_file):
        return
    try:
        answer = connection.call(
            _DESCRIBE_CLUSTER,
            2,
            lambda schema: make(
                schema.DescribeClusterRequest, include_cluster_authorized_operations=True, include_fenced_brokers=False
            ),
        )
    except Unsupported:
        return
    if not _operations(answer.cluster_authorized_operations):
        user = credentials.user or "NAME"
        yield warning(
            f"{credentials.user or 'This client'} sees no topic, and has no permission on the cluster.",
            f"Ask an administrator for an ACL, as: headrace acl add {user} --read topic:orders --group billing; "
            "--topic NAME and --group NAME check one.",
        )


def _topic_finding(connection: WireConnection, who: str, user: str, topic: str) -> Finding:
    def build(schema: ModuleType) -> Any:
        return make(
            schema.MetadataRequest,
            topics=(make(schema.MetadataRequestTopic, name=topic, topic_id=None),),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        )

    (found,) = connection.call(_METADATA, 12, build, lowest=8).topics
    resource = Resource(ResourceType.TOPIC, topic)
    if found.error_code is ErrorCode.topic_authorization_failed:
        return _missing(who, user, AclOperation.READ, resource)
    if found.error_code is ErrorCode.unknown_topic_or_partition:
        return problem(f"There is no topic {topic}.", f"`headrace topic create {topic}` makes it.")
    allowed = _operations(found.topic_authorized_operations)
    if AclOperation.READ in allowed or AclOperation.WRITE in allowed:
        return ok(f"{who} may {_names(allowed)} the topic {topic}.")
    return _missing(who, user, AclOperation.READ, resource)


def _group_finding(connection: WireConnection, who: str, user: str, group: str) -> Finding:
    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeGroupsRequest, groups=(group,), include_authorized_operations=True)

    (found,) = connection.call(_DESCRIBE_GROUPS, 5, build, lowest=3).groups
    allowed = _operations(found.authorized_operations)
    if found.error_code is ErrorCode.group_authorization_failed or (allowed and AclOperation.READ not in allowed):
        return _missing(who, user, AclOperation.READ, Resource(ResourceType.GROUP, group))
    return ok(f"{who} may use the group {group}.")


def _missing(who: str, user: str, operation: AclOperation, resource: Resource) -> Finding:
    return problem(
        f"No ACL allows {who} to {operation.name.lower()} the {resource}.",
        f"An administrator adds it with: {adding(user, operation, resource)}; or why not: headrace acl explain {user} "
        f"{operation.name.lower()} {str(resource).replace(' ', ':', 1)}.",
    )


def _operations(bits: int) -> list[AclOperation]:
    return [] if bits == _NOT_GIVEN else [each for each in AclOperation if int(bits) >> each & 1]


def _names(operations: list[AclOperation]) -> str:
    return ", ".join(each.name.lower().replace("_", " ") for each in operations)
