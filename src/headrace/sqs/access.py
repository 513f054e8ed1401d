"""Decides whether a client may do something with a queue: by access control lists (a queue is a topic) and by the
queue's policy, combined as AWS combines the policies of a user and of a queue in one account.

- Allowed is what an ACL or the policy allows and neither denies. A DENY rule and a Deny statement win over everything.
- The policy binds super users, too, except for the actions that repair one that locks everyone out.
- The answer to a client that may not see the queue is the same whether the queue exists or not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.model.acls import CLUSTER_NAME, AclOperation, Resource, ResourceType
from headrace.model.users import USER_TYPE
from headrace.queues.api import QueueInfo
from headrace.security.authorizer import Authorizer
from headrace.security.security import Security
from headrace.security.subject import Subject
from headrace.sqs import errors
from headrace.sqs.policy_conditions import PolicyContext
from headrace.sqs.policy_evaluation import PolicyRequest, Verdict, queue_policy, user_arn

POLICY_ATTRIBUTE = "Policy"
TAG_PREFIX = "tag:"
_REPAIRS = frozenset({"GetQueueAttributes", "GetQueueUrl", "RemovePermission", "SetQueueAttributes"})
"""Actions that a super user may do whatever the policy of the queue says, as AWS's root user may."""
_SEES = ("GetQueueUrl",)
"""The action that a policy must allow for a queue to be listed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, as access control sees it."""

    subject: Subject
    is_secure: bool = False
    """True if the request came over TLS."""
    user_agent: str = ""
    referer: str = ""

    @property
    def user(self) -> str:
        return self.subject.principal.removeprefix(f"{USER_TYPE}:")


class QueueAccessRequest(NamedTuple):
    """One permission that an action needs on one queue."""

    action: str
    """As the audit log names it."""
    operation: AclOperation
    allowed_by: Sequence[str]
    """The actions that a policy must allow, all of them; the first one is named in the error."""
    queue: str
    info: QueueInfo | None
    """None for a queue that does not exist."""
    is_named: bool = True
    """False if the error must not name the queue, because the request does not."""


class QueueAccess:
    def __init__(self, security: Security, account: str, region: str, wall_ms: Callable[[], int]) -> None:
        self._security = security
        self._account = account
        self._region = region
        self._wall_ms = wall_ms

    @property
    def is_enforced(self) -> bool:
        """False while authorization is off: every client may do everything."""
        return self._security.authorizer is not None

    def check(self, caller: Caller, wanted: QueueAccessRequest) -> None:
        """AccessDenied unless the caller may do this."""
        authorizer = self._security.authorizer
        if authorizer is None:
            return
        reason = self._denial(authorizer, caller, wanted)
        if not reason:
            self._security.permitted[wanted.operation, ResourceType.TOPIC] += 1
            return
        action, operation, queue = wanted.action, wanted.operation, wanted.queue
        kind = ResourceType.TOPIC
        # For the audit log: the ACL that denies it or is missing, unless the queue's policy has decided.
        rule = _OWN_WORDS[reason] if reason == _POLICY_DENIES else ""
        self._security.denied(caller.subject, caller.user_agent, action, operation, kind, queue, reason=rule)
        if reason == _POLICY_DENIES and not _acl_allows(authorizer, caller, AclOperation.DESCRIBE, queue):
            # That the queue has a policy would show that it exists.
            reason = _NOTHING_ALLOWS
        lowered = f"sqs:{wanted.allowed_by[0].lower()}"
        raise errors.access_denied(
            f"User: {user_arn(self._account, caller.user)} is not authorized to perform: {lowered} on resource: "
            f"{self._arn(queue if wanted.is_named else '*')} {reason.format(action=lowered)}",
            f"{caller.subject.principal} may not {operation.name.lower()} "
            f"{f'the queue {queue}' if wanted.is_named else 'every queue that this concerns'}: {_OWN_WORDS[reason]}",
        )

    def sees(self, caller: Caller, info: QueueInfo) -> bool:
        """Whether a list may show the queue."""
        authorizer = self._security.authorizer
        if authorizer is None:
            return True
        wanted = QueueAccessRequest("ListQueues", AclOperation.DESCRIBE, _SEES, info.name, info)
        return not self._denial(authorizer, caller, wanted)

    def _denial(self, authorizer: Authorizer, caller: Caller, wanted: QueueAccessRequest) -> str:
        """Why it is denied, in AWS's words; empty if it is allowed."""
        operation, queue, info = wanted.operation, wanted.queue, wanted.info
        is_allowed = _acl_allows(authorizer, caller, operation, queue)
        text = None if info is None else info.attributes.get(POLICY_ATTRIBUTE)
        if info is None or text is None:
            return "" if is_allowed else _acl_reason(authorizer, caller, operation, queue)
        policy = queue_policy(text)
        context = self._context(caller, info) if policy.reads_context else {}
        for action in wanted.allowed_by:
            verdict = policy.evaluate(PolicyRequest(self._account, caller.user, action, self._arn(queue), context))
            if verdict is Verdict.DENIED:
                if action in _REPAIRS and authorizer.is_super_user(caller.subject.principal):
                    continue
                return _POLICY_DENIES
            if verdict is Verdict.SILENT and not is_allowed:
                return _acl_reason(authorizer, caller, operation, queue)
        if not is_allowed and _acl_denies(authorizer, caller, operation, queue):
            return _ACL_DENIES
        return ""

    def _arn(self, queue: str) -> str:
        return f"arn:aws:sqs:{self._region}:{self._account}:{queue}"

    def _context(self, caller: Caller, info: QueueInfo) -> PolicyContext:
        """The values of condition keys."""
        now_s = self._wall_ms() // 1000
        found = {
            "aws:currenttime": datetime.fromtimestamp(now_s, UTC).isoformat(),
            "aws:epochtime": str(now_s),
            "aws:principalaccount": self._account,
            "aws:principalarn": user_arn(self._account, caller.user),
            "aws:principalisawsservice": "false",
            "aws:principaltype": "User",
            "aws:requestedregion": self._region,
            "aws:resourceaccount": self._account,
            "aws:securetransport": "true" if caller.is_secure else "false",
            "aws:sourceip": caller.subject.host,
            "aws:userid": caller.user,
            "aws:username": caller.user,
            "aws:viaawsservice": "false",
        }
        given = {"aws:useragent": caller.user_agent, "aws:referer": caller.referer}
        found |= {name: value for name, value in given.items() if value}
        for name, value in info.attributes.items():
            if name.startswith(TAG_PREFIX):
                found[f"aws:resourcetag/{name.removeprefix(TAG_PREFIX).lower()}"] = value
        return found


_NOTHING_ALLOWS = "because no identity-based policy allows the {action} action"
_ACL_DENIES = "with an explicit deny in an identity-based policy"
_POLICY_DENIES = "with an explicit deny in a resource-based policy"
_OWN_WORDS = {
    _NOTHING_ALLOWS: "no ACL allows it, and no policy of the queue",
    _ACL_DENIES: "an ACL denies it",
    _POLICY_DENIES: "the policy of the queue denies it",
}


def _acl_allows(authorizer: Authorizer, caller: Caller, operation: AclOperation, queue: str) -> bool:
    principal, host = caller.subject.principal, caller.subject.host
    return authorizer.allows(principal, host, operation, ResourceType.TOPIC, queue) or (
        operation is AclOperation.CREATE
        and authorizer.allows(principal, host, operation, ResourceType.CLUSTER, CLUSTER_NAME)
    )


def _acl_reason(authorizer: Authorizer, caller: Caller, operation: AclOperation, queue: str) -> str:
    return _ACL_DENIES if _acl_denies(authorizer, caller, operation, queue) else _NOTHING_ALLOWS


def _acl_denies(authorizer: Authorizer, caller: Caller, operation: AclOperation, queue: str) -> bool:
    """Whether a rule denies it, as opposed to no rule allowing it."""
    decision = authorizer.decide(
        caller.subject.principal, caller.subject.host, operation, Resource(ResourceType.TOPIC, queue)
    )
    return not decision.is_allowed and decision.rule is not None
