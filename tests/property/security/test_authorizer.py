"""The compiled index decides as one pass over all rules would, whatever the rules are."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.acls import IMPLIED_BY, Acl, AclOperation, PatternType, Permission, Resource, ResourceType
from headrace.security.authorizer import Authorizer

NAMES = st.text("ab*", min_size=1, max_size=4)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.0/8", "10.0.0.2"])
CLIENTS = st.sampled_from(["10.0.0.1", "10.9.9.9", "192.168.0.1"])
KINDS = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from(list(AclOperation)[:8])
ACLS = st.builds(
    Acl,
    KINDS,
    st.sampled_from(PatternType),
    NAMES,
    PRINCIPALS,
    HOSTS,
    OPERATIONS,
    st.sampled_from(Permission),
)
ASKED = st.sampled_from(list(AclOperation)[1:8])


def expected(
    acls: list[Acl], principal: str, host: str, operation: AclOperation, asked: Resource, everyone: bool
) -> bool:
    def is_host(acl: Acl) -> bool:
        return acl.host in ("*", host) or (acl.host == "10.0.0.0/8" and host.startswith("10."))

    about = [acl for acl in acls if acl.resource_type is asked.resource_type and acl.matches_name(asked.name)]
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and is_host(acl)]
    if any(acl.permission is Permission.DENY and acl.operation in (operation, AclOperation.ALL) for acl in mine):
        return False
    granting = {operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ())}
    if any(acl.permission is Permission.ALLOW and acl.operation in granting for acl in mine):
        return True
    return everyone and not about


@given(st.lists(ACLS, max_size=12), PRINCIPALS, CLIENTS, ASKED, KINDS, NAMES, st.booleans())
def test_decisions_are_those_of_the_plain_rules(
    acls: list[Acl],
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    everyone: bool,
) -> None:
    authorizer = Authorizer(acls, allow_everyone=everyone)
    wanted = expected(acls, principal, host, operation, Resource(kind, name), everyone)
    for _ in range(2):  # the second answer comes from the cache
        assert authorizer.allows(principal, host, operation, kind, name) is wanted


@given(st.lists(ACLS, max_size=8), PRINCIPALS, CLIENTS, ASKED, KINDS, NAMES)
def test_what_is_allowed_somewhere_is_allowed_on_any(
    acls: list[Acl], principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> None:
    authorizer = Authorizer(acls)
    if authorizer.allows(principal, host, operation, kind, name):
        assert authorizer.allows_on_any(principal, host, operation, kind)
