"""Decides what the access policy of a queue says about a request, as AWS does within one account. Pure.

- A statement applies if its principal, action, resource and conditions all match. The order of statements is
  irrelevant, and a Deny that applies wins over every Allow.
- `*` and the ARN of a user (`arn:aws:iam::ACCOUNT:user/NAME`) name principals. The account itself (its id, or its
  `:root`) in a Deny is every user. In an Allow it grants nothing by itself: it leaves the decision to the account's own
  rules, here the access control lists. The default policy of the AWS console, which allows `:root` everything, thus
  opens no queue.
- NotPrincipal is for Deny only. An account in it exempts no user.
- Services, roles, federated users and other accounts are valid principals that no request here is made by.
- `SendMessage` in a policy is SendMessageBatch, too, and so on: batches have no names of their own.

A policy that is malformed, or has an operator or condition key that the broker does not know, is refused when it is set
(`problem_with`). One that was stored before the check fails closed: such a statement denies everything if its effect is
Deny, and grants nothing otherwise; a text that is no policy at all denies everything.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from headrace.sqs.policy_conditions import (
    MalformedPolicy,
    PolicyCondition,
    PolicyContext,
    UnresolvedVariable,
    check_arn_pattern,
    check_variables,
    contains_variable,
    matches_arn,
    matches_text,
    read_conditions,
)

SINGLE_ACTIONS = {
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "DeleteMessageBatch": "DeleteMessage",
    "SendMessageBatch": "SendMessage",
}
"""Actions that policies know by the name of another one."""
POLICY_ACTIONS = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "ChangeMessageVisibility",
        "CreateQueue",
        "DeleteMessage",
        "DeleteQueue",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "RemovePermission",
        "SendMessage",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
WITH_VARIABLES = "2012-10-17"
"""The version of policies from which on `${…}` is a variable."""
VERSIONS = ("2008-10-17", WITH_VARIABLES)
EFFECTS = ("Allow", "Deny")
_PREFIX = "sqs:"
_EVERYTHING = "*"
_ACCOUNT = re.compile(r"[0-9]{12}")
_PRINCIPAL_ARN = re.compile(
    r"arn:aws[a-z-]*:(iam|sts)::([0-9]{12}):(root|(?:user|role|assumed-role|federated-user)/[^*?]+)"
)
_UNIQUE_ID = re.compile(r"A[A-Z0-9]{15,127}")
"""What AWS shows in place of a user that was deleted."""
_PRINCIPAL_KINDS = frozenset({"AWS", "Service", "Federated", "CanonicalUser"})
_POLICY_KEYS = frozenset({"Version", "Id", "Statement"})
_STATEMENT_KEYS = frozenset(
    {"Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"}
)


class Verdict(Enum):
    """What a policy says about a request."""

    DENIED = "explicit deny"
    ALLOWED = "allow"
    SILENT = "no statement"


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A request as policies see it."""

    account: str
    user: str
    """The name of the user in the account."""
    action: str
    """Without `sqs:`, as `SendMessageBatch`."""
    resource: str
    """The ARN of the queue."""
    context: PolicyContext
    """Condition keys in lower case."""

    @property
    def user_arn(self) -> str:
        return user_arn(self.account, self.user)


def user_arn(account: str, user: str) -> str:
    return f"arn:aws:iam::{account}:user/{user}"


# -- statements


@dataclass(frozen=True, slots=True)
class _Principals:
    is_negated: bool
    everyone: bool
    arns: frozenset[str]
    accounts: frozenset[str]

    def match(self, request: PolicyRequest, is_deny: bool) -> bool:
        is_named = self.everyone or request.user_arn in self.arns
        if self.is_negated:
            return not is_named
        return is_named or (is_deny and request.account in self.accounts)


@dataclass(frozen=True, slots=True)
class _Patterns:
    is_negated: bool
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Statement:
    is_deny: bool
    principals: _Principals
    actions: _Patterns
    resources: _Patterns
    conditions: tuple[PolicyCondition, ...]
    has_variables: bool

    def applies(self, request: PolicyRequest) -> bool:
        variables = request.context if self.has_variables else None
        try:
            return (
                self.principals.match(request, self.is_deny)
                and self._acts(SINGLE_ACTIONS.get(request.action, request.action))
                and self._is_about(request.resource, variables)
                and all(condition.holds(request.context, variables) for condition in self.conditions)
            )
        except UnresolvedVariable:
            return self.is_deny

    def _acts(self, action: str) -> bool:
        return any(_names_action(each, action) for each in self.actions.patterns) != self.actions.is_negated

    def _is_about(self, resource: str, variables: PolicyContext | None) -> bool:
        found = any(each == resource or matches_arn(each, resource, variables) for each in self.resources.patterns)
        return found != self.resources.is_negated


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """A policy that was read. It denies everything if it `is_closed`: a Deny in it could not be read."""

    statements: tuple[_Statement, ...]
    is_closed: bool = False

    @property
    def reads_context(self) -> bool:
        """Whether a request needs values of condition keys to be evaluated."""
        return any(each.conditions or each.has_variables for each in self.statements)

    def evaluate(self, request: PolicyRequest) -> Verdict:
        if self.is_closed:
            return Verdict.DENIED
        verdict = Verdict.SILENT
        for statement in self.statements:
            if statement.applies(request):
                if statement.is_deny:
                    return Verdict.DENIED
                verdict = Verdict.ALLOWED
        return verdict


@lru_cache(maxsize=1024)
def queue_policy(text: str) -> QueuePolicy:
    """The policy in a stored text. What cannot be read fails closed."""
    try:
        document = _policy_document(text)
    except MalformedPolicy:
        return QueuePolicy((), is_closed=True)
    statements: list[_Statement] = []
    for each in _statement_documents(document):
        try:
            statements.append(_statement(each, _has_variables(document)))
        except MalformedPolicy:
            if not isinstance(each, dict) or each.get("Effect") != "Allow":
                return QueuePolicy((), is_closed=True)
    return QueuePolicy(tuple(statements))


def problem_with(text: str) -> str | None:
    """Why a text cannot be the policy of a queue; None if it can."""
    try:
        document = _policy_document(text)
        for each in _statement_documents(document):
            _statement(each, _has_variables(document))
    except MalformedPolicy as error:
        return str(error)
    return None


# -- reading


def parse_policy(text: str) -> dict[str, Any]:
    """The object in a text; `MalformedPolicy` if there is none, or if a name occurs twice in an object of it."""
    try:
        found = json.loads(text, object_pairs_hook=_without_duplicates)
    except MalformedPolicy:
        raise
    except (ValueError, RecursionError):
        raise MalformedPolicy("it is no JSON") from None
    if not isinstance(found, dict):
        raise MalformedPolicy("it is no JSON object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MalformedPolicy("a name occurs twice in an object")
    return found


def _policy_document(text: str) -> dict[str, Any]:
    document = parse_policy(text)
    if not document.keys() <= _POLICY_KEYS or document.get("Version", VERSIONS[0]) not in VERSIONS:
        raise MalformedPolicy("it has an unknown element or version")
    if not _statement_documents(document):
        raise MalformedPolicy("it has no statement")
    return document


def _statement_documents(document: Mapping[str, Any]) -> list[Any]:
    found = document.get("Statement", [])
    return found if isinstance(found, list) else [found]


def _has_variables(document: Mapping[str, Any]) -> bool:
    return document.get("Version") == WITH_VARIABLES


def _statement(document: object, has_variables: bool) -> _Statement:
    if not isinstance(document, dict) or not document.keys() <= _STATEMENT_KEYS:
        raise MalformedPolicy("a statement has an unknown element")
    if document.get("Effect") not in EFFECTS:
        raise MalformedPolicy("the Effect of a statement is Allow or Deny")
    is_deny = document["Effect"] == "Deny"
    principals = _principals(document)
    if principals.is_negated and not is_deny:
        raise MalformedPolicy("NotPrincipal is for Deny only")
    actions, resources = _patterns(document, "Action"), _resources(document)
    for pattern in actions.patterns:
        if not any(_names_action(pattern, name) for name in POLICY_ACTIONS):
            raise MalformedPolicy(f"{pattern} is no action of SQS")
    for pattern in resources.patterns:
        check_arn_pattern(pattern)
        if has_variables:
            check_variables(pattern)
    conditions = read_conditions(document.get("Condition", {}))
    texts = [*resources.patterns, *(value for each in conditions for value in each.values)]
    return _Statement(
        is_deny, principals, actions, resources, conditions, has_variables and any(map(contains_variable, texts))
    )


def _resources(document: Mapping[str, Any]) -> _Patterns:
    """Without the element, a statement is about the queue that has the policy."""
    is_given = "Resource" in document or "NotResource" in document
    return _patterns(document, "Resource") if is_given else _Patterns(False, (_EVERYTHING,))


def _patterns(document: Mapping[str, Any], name: str) -> _Patterns:
    is_negated, found = _one_of(document, name)
    texts = found if isinstance(found, list) else [found]
    if not texts or not all(isinstance(each, str) and each for each in texts):
        raise MalformedPolicy(f"the {name} of a statement is a string or a list of strings")
    return _Patterns(is_negated, tuple(texts))


def _one_of(document: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """Whether the element or its negation is there, and its value."""
    if (name in document) == (f"Not{name}" in document):
        raise MalformedPolicy(f"a statement has either {name} or Not{name}")
    return (False, document[name]) if name in document else (True, document[f"Not{name}"])


@lru_cache(maxsize=1024)
def _names_action(pattern: str, action: str) -> bool:
    if pattern == _EVERYTHING:
        return True
    lowered = pattern.lower()
    return lowered.startswith(_PREFIX) and matches_text(lowered, _PREFIX + action.lower(), None)


def _principals(document: Mapping[str, Any]) -> _Principals:
    is_negated, found = _one_of(document, "Principal")
    if found == _EVERYTHING:
        return _Principals(is_negated, True, frozenset(), frozenset())
    if not isinstance(found, dict) or not found or not found.keys() <= _PRINCIPAL_KINDS:
        raise MalformedPolicy('a principal is * or an object such as {"AWS": "ARN"}')
    for value in found.values():
        if not value or not all(isinstance(each, str) and each for each in _listed(value)):
            raise MalformedPolicy("a principal is a string or a list of strings")
    names = _listed(found.get("AWS", []))
    arns, accounts = set(), set()
    for name in names:
        account = _account_in(name)
        if account is not None:
            accounts.add(account)
        elif name != _EVERYTHING:
            arns.add(name)
    return _Principals(is_negated, _EVERYTHING in names, frozenset(arns), frozenset(accounts))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def is_principal(name: str) -> bool:
    """Whether a policy may name this principal of AWS."""
    try:
        _account_in(name)
    except MalformedPolicy:
        return False
    return True


def _account_in(name: str) -> str | None:
    """The account that a principal stands for; None for everyone, or for a single principal."""
    if _ACCOUNT.fullmatch(name):
        return name
    found = _PRINCIPAL_ARN.fullmatch(name)
    if found is None and name != _EVERYTHING and _UNIQUE_ID.fullmatch(name) is None:
        raise MalformedPolicy(f"{name} is no principal")
    return found[2] if found is not None and found[3] == "root" else None
