"""The access policy of a queue (`Policy`): its form and its limits. `policy_evaluation` decides what it allows."""

from typing import Any

from headrace.sqs import errors
from headrace.sqs.access import POLICY_ATTRIBUTE
from headrace.sqs.policy_conditions import MalformedPolicy
from headrace.sqs.policy_evaluation import EFFECTS, VERSIONS, parse_policy, problem_with

NAME = POLICY_ATTRIBUTE
MOST_STATEMENTS = 20
MOST_ACTIONS = 7
"""In one statement."""
_MOST_BYTES = 8_192
_KEYS = frozenset({"Version", "Id", "Statement"})


def check(text: str) -> None:
    """`SqsError` for a text that cannot be a policy."""
    check_size(text)
    policy = load(text)
    statements = statements_of(policy)
    is_policy = policy.keys() <= _KEYS and policy.get("Version", VERSIONS[0]) in VERSIONS
    if not is_policy or not statements or any(each.get("Effect") not in EFFECTS for each in statements):
        raise errors.invalid_attribute_value(NAME)
    if len(statements) > MOST_STATEMENTS:
        raise errors.over_limit(
            f"{len(statements)} statements were found in the submitted policy, max allowed is {MOST_STATEMENTS}"
        )
    for statement in statements:
        actions = statement.get("Action", [])
        if isinstance(actions, list) and len(actions) > MOST_ACTIONS:
            raise errors.over_limit(
                f"{len(actions)} actions were found in a statement from the submitted policy, max allowed is "
                f"{MOST_ACTIONS}"
            )
    problem = problem_with(text)
    if problem is not None:
        raise errors.invalid_attribute_value(NAME, f"{problem}.")


def check_size(text: str) -> None:
    if len(text.encode("utf-8", "replace")) > _MOST_BYTES:
        raise errors.over_limit("Submitted policy is over max allowed size.")


def load(text: str) -> dict[str, Any]:
    """The policy in a text; empty if there is none."""
    try:
        return parse_policy(text)
    except MalformedPolicy:
        return {}


def statements_of(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """The statements of a policy, which may be a single one or a list; empty if one of them is no statement."""
    found = policy.get("Statement", [])
    statements = found if isinstance(found, list) else [found]
    return statements if all(isinstance(each, dict) for each in statements) else []
