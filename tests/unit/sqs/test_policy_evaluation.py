"""Access policies against the rules that AWS documents."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sqs.policy_conditions import matches_arn, matches_text
from headrace.sqs.policy_evaluation import PolicyRequest, Verdict, problem_with, queue_policy, user_arn

ACCOUNT = "111122223333"
QUEUE = f"arn:aws:sqs:us-east-1:{ACCOUNT}:work"
ALICE, BOB, ROOT = user_arn(ACCOUNT, "alice"), user_arn(ACCOUNT, "bob"), f"arn:aws:iam::{ACCOUNT}:root"
CONTEXT = {
    "aws:sourceip": "10.1.2.3",
    "aws:securetransport": "true",
    "aws:username": "alice",
    "aws:principalarn": ALICE,
    "aws:currenttime": "2026-11-17T18:00:00Z",
    "aws:epochtime": "1794938400",
    "aws:resourcetag/team": "orders",
}
DENIED, ALLOWED, SILENT = Verdict.DENIED, Verdict.ALLOWED, Verdict.SILENT


def statement(effect: str = "Allow", **more: Any) -> dict[str, Any]:
    """A statement that is about all that `ask` asks. None removes an element."""
    made = {"Effect": effect, "Principal": "*", "Action": "sqs:*", "Resource": QUEUE, **more}
    return {name: value for name, value in made.items() if value is not None}


def policy(*statements: dict[str, Any], version: str = "2012-10-17") -> str:
    return json.dumps({"Version": version, "Statement": list(statements)})


def ask(
    text: str, *, user: str = "alice", action: str = "SendMessage", resource: str = QUEUE, **context: Any
) -> Verdict:
    found = {**CONTEXT, **{f"aws:{name.lower()}": value for name, value in context.items()}}
    present = {name: value for name, value in found.items() if value is not None}
    return queue_policy(text).evaluate(PolicyRequest(ACCOUNT, user, action, resource, present))


def applies(**more: Any) -> tuple[Verdict, Verdict]:
    """What an Allow and a Deny with these elements say."""
    texts = [policy(statement(effect, **more)) for effect in ("Allow", "Deny")]
    assert [problem_with(text) for text in texts] == [None, None]
    return ask(texts[0]), ask(texts[1])


MATCH, MISS = (ALLOWED, DENIED), (SILENT, SILENT)


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ("*", MATCH),
        ({"AWS": "*"}, MATCH),
        ({"AWS": ["*"]}, MATCH),
        ({"AWS": ALICE}, MATCH),
        ({"AWS": [BOB, ALICE]}, MATCH),
        ({"AWS": BOB}, MISS),
        ({"AWS": ALICE.upper()[:-5] + "alice"}, None),
        ({"AWS": user_arn(ACCOUNT, "Alice")}, MISS),
        ({"AWS": user_arn("444455556666", "alice")}, MISS),
        # Delegates to the account's own rules: an Allow grants nothing by itself.
        ({"AWS": ACCOUNT}, (SILENT, DENIED)),
        ({"AWS": ROOT}, (SILENT, DENIED)),
        ({"AWS": "444455556666"}, MISS),
        ({"AWS": "arn:aws:iam::444455556666:root"}, MISS),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:role/alice"}, MISS),
        ({"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/alice/session"}, MISS),
        ({"AWS": "AIDACKCEVSQ6C2EXAMPLE"}, MISS),
        ({"Service": "sns.amazonaws.com"}, MISS),
        ({"Service": ["sns.amazonaws.com"], "AWS": ALICE}, MATCH),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/*"}, None),
        ({"AWS": "alice"}, None),
        ({"AWS": []}, None),
        ({"AWS": 5}, None),
        ({"Users": ALICE}, None),
        ({}, None),
        (ALICE, None),
        ([ALICE], None),
    ],
)
def test_principals(principal: Any, expected: tuple[Verdict, Verdict] | None) -> None:
    if expected is None:
        assert problem_with(policy(statement(Principal=principal))) is not None
        assert ask(policy(statement(Principal=principal))) is SILENT
        assert ask(policy(statement("Deny", Principal=principal))) is DENIED
    else:
        assert applies(Principal=principal) == expected


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ({"AWS": ALICE}, SILENT),
        ({"AWS": [ROOT, ALICE]}, SILENT),
        ({"AWS": BOB}, DENIED),
        ({"AWS": ROOT}, DENIED),
        ({"AWS": ACCOUNT}, DENIED),
        ("*", SILENT),
    ],
)
def test_denied_to_everyone_but(principal: Any, expected: Verdict) -> None:
    assert ask(policy(statement("Deny", Principal=None, NotPrincipal=principal))) is expected


def test_an_allow_to_everyone_but_is_refused() -> None:
    text = policy(statement(Principal=None, NotPrincipal={"AWS": BOB}))
    assert problem_with(text) == "NotPrincipal is for Deny only"
    assert ask(text) is SILENT


@pytest.mark.parametrize(
    ("patterns", "action", "is_named"),
    [
        ("sqs:SendMessage", "SendMessage", True),
        ("SQS:SendMessage", "SendMessage", True),
        ("sqs:sendmessage", "SendMessage", True),
        ("sqs:*", "SendMessage", True),
        ("*", "SendMessage", True),
        ("sqs:Send*", "SendMessage", True),
        ("sqs:?endMessage", "SendMessage", True),
        ("sqs:Get*", "GetQueueUrl", True),
        ("sqs:Get*", "SendMessage", False),
        (["sqs:ReceiveMessage", "sqs:SendMessage"], "SendMessage", True),
        ("sqs:SendMessage", "SendMessageBatch", True),
        ("sqs:DeleteMessage", "DeleteMessageBatch", True),
        ("sqs:ChangeMessageVisibility", "ChangeMessageVisibilityBatch", True),
        ("sqs:ReceiveMessage", "SendMessage", False),
        ("sqs:DeleteMessage", "DeleteQueue", False),
    ],
)
def test_actions(patterns: Any, action: str, is_named: bool) -> None:
    allow, deny = policy(statement(Action=patterns)), policy(statement("Deny", Action=patterns))
    assert (ask(allow, action=action), ask(deny, action=action)) == (MATCH if is_named else MISS)
    if patterns != "*":
        others = policy(statement("Deny", Action=None, NotAction=patterns))
        assert ask(others, action=action) is (SILENT if is_named else DENIED)


@pytest.mark.parametrize("action", ["s3:*", "SendMessage", "sqs:Nothing", "sqs:SendMessageBatch", "", [], 5, None])
def test_actions_that_are_refused(action: Any) -> None:
    assert problem_with(policy(statement(Action=action))) is not None
    assert ask(policy(statement("Deny", Action=action))) is DENIED


@pytest.mark.parametrize(
    ("resource", "is_named"),
    [
        (QUEUE, True),
        ("*", True),
        (f"arn:aws:sqs:us-east-1:{ACCOUNT}:*", True),
        (f"arn:aws:sqs:*:{ACCOUNT}:w?rk", True),
        ("arn:aws:sqs:*:*:*", True),
        ("arn:aws:sqs:*", True),
        ([f"{QUEUE}-2", QUEUE], True),
        (f"arn:aws:sqs:us-east-1:{ACCOUNT}:Work", False),
        (f"arn:aws:sqs:eu-west-1:{ACCOUNT}:work", False),
        (f"{QUEUE}-2", False),
        # A wildcard does not reach over a colon.
        ("arn:aws:sqs:*:*:444455556666:work", False),
        ("arn:aws:*:us-east-1:*:or*", False),
    ],
)
def test_resources(resource: Any, is_named: bool) -> None:
    assert applies(Resource=resource) == (MATCH if is_named else MISS)
    assert applies(Resource=None, NotResource=resource) == (MISS if is_named else MATCH)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({}, True),
        ({"StringEquals": {"aws:username": "alice"}}, True),
        ({"StringEquals": {"AWS:UserName": ["bob", "alice"]}}, True),
        ({"StringEquals": {"aws:username": "Alice"}}, False),
        ({"StringEquals": {"aws:username": "al*"}}, False),
        ({"StringNotEquals": {"aws:username": ["bob", "carol"]}}, True),
        ({"StringNotEquals": {"aws:username": ["bob", "alice"]}}, False),
        ({"StringEqualsIgnoreCase": {"aws:username": "ALICE"}}, True),
        ({"StringNotEqualsIgnoreCase": {"aws:username": "ALICE"}}, False),
        ({"StringLike": {"aws:username": "al*"}}, True),
        ({"StringLike": {"aws:username": "al?"}}, False),
        ({"StringNotLike": {"aws:username": "al*"}}, False),
        ({"StringEquals": {"aws:resourcetag/team": "orders"}}, True),
        ({"ArnEquals": {"aws:PrincipalArn": ALICE}}, True),
        ({"ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:user/*"}}, True),
        ({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*"}}, True),
        ({"ArnNotEquals": {"aws:PrincipalArn": ALICE}}, False),
        ({"ArnNotLike": {"aws:PrincipalArn": BOB}}, True),
        ({"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, True),
        ({"IpAddress": {"aws:SourceIp": ["192.0.2.0/24", "10.1.2.3"]}}, True),
        ({"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}}, False),
        ({"IpAddress": {"aws:SourceIp": "2001:db8::/32"}}, False),
        ({"NotIpAddress": {"aws:SourceIp": ["192.0.2.0/24", "198.51.100.0/24"]}}, True),
        ({"NotIpAddress": {"aws:SourceIp": ["192.0.2.0/24", "10.0.0.0/8"]}}, False),
        ({"Bool": {"aws:SecureTransport": "true"}}, True),
        ({"Bool": {"aws:SecureTransport": True}}, True),
        ({"Bool": {"aws:SecureTransport": "False"}}, False),
        ({"DateGreaterThan": {"aws:CurrentTime": "2026-11-17T17:59:59Z"}}, True),
        ({"DateGreaterThan": {"aws:CurrentTime": "2026-11-17T18:00:00Z"}}, False),
        ({"DateGreaterThanEquals": {"aws:CurrentTime": "2026-11-17T19:00:00+01:00"}}, True),
        ({"DateLessThan": {"aws:CurrentTime": "2026-11-18"}}, True),
        ({"DateLessThanEquals": {"aws:EpochTime": "1794938400"}}, True),
        ({"DateEquals": {"aws:CurrentTime": "1794938400"}}, True),
        ({"DateNotEquals": {"aws:CurrentTime": "1794938400"}}, False),
        ({"NumericLessThan": {"aws:EpochTime": 1794938401}}, True),
        ({"NumericNotEquals": {"aws:EpochTime": 1794938400}}, False),
        # All operators and keys, one of the values.
        ({"StringEquals": {"aws:username": "alice"}, "Bool": {"aws:SecureTransport": "false"}}, False),
        ({"StringEquals": {"aws:username": "alice", "aws:PrincipalArn": BOB}}, False),
        # Keys that the request does not have.
        ({"StringEquals": {"aws:SourceVpce": "vpce-1"}}, False),
        ({"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}, True),
        ({"ArnEquals": {"aws:SourceArn": "arn:aws:sns:*:*:topic"}}, False),
        ({"ArnNotEquals": {"aws:SourceArn": "arn:aws:sns:*:*:topic"}}, True),
        ({"StringEqualsIfExists": {"aws:SourceVpce": "vpce-1"}}, True),
        ({"StringEqualsIfExists": {"aws:username": "bob"}}, False),
        ({"Null": {"aws:SourceArn": "true"}}, True),
        ({"Null": {"aws:SourceArn": False}}, False),
        ({"Null": {"aws:username": "true"}}, False),
        ({"Null": {"aws:username": "false"}}, True),
        ({"Bool": {"aws:MultiFactorAuthPresent": "true"}}, False),
        ({"BoolIfExists": {"aws:MultiFactorAuthPresent": "false"}}, True),
        # Several values.
        ({"ForAnyValue:StringEquals": {"aws:username": ["alice", "bob"]}}, True),
        ({"ForAnyValue:StringEquals": {"aws:CalledVia": ["x"]}}, False),
        ({"ForAnyValue:StringNotEquals": {"aws:CalledVia": ["x"]}}, False),
        ({"ForAllValues:StringEquals": {"aws:CalledVia": ["x"]}}, True),
        ({"ForAllValues:StringEquals": {"aws:username": ["bob"]}}, False),
        # Variables.
        ({"StringEquals": {"aws:username": "${aws:username}"}}, True),
        ({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:user/${aws:username}"}}, True),
        ({"StringLike": {"aws:username": "${*}"}}, False),
    ],
)
def test_conditions(condition: Any, holds: bool) -> None:
    assert applies(Condition=condition) == (MATCH if holds else MISS)


@pytest.mark.parametrize(
    "condition",
    [
        {"StringNearly": {"aws:username": "alice"}},
        {"stringequals": {"aws:username": "alice"}},
        {"BinaryEquals": {"aws:username": "YWxpY2U="}},
        {"NullIfExists": {"aws:username": "true"}},
        {"ForSomeValues:StringEquals": {"aws:username": "alice"}},
        {"StringEquals": {"aws:RequestTag/team": "orders"}},
        {"StringEquals": {"sqs:Nothing": "x"}},
        {"StringEquals": {"aws:username": "${aws:unknown}"}},
        {"StringEquals": {"aws:username": "${aws:username, 'x'}"}},
        {"StringEquals": {"aws:username": []}},
        {"StringEquals": {"aws:username": {"a": "b"}}},
        {"StringEquals": {"aws:username": None}},
        {"StringEquals": {}},
        {"StringEquals": "alice"},
        {"IpAddress": {"aws:SourceIp": "nowhere"}},
        {"Bool": {"aws:SecureTransport": "perhaps"}},
        {"DateLessThan": {"aws:CurrentTime": "tomorrow"}},
        {"NumericLessThan": {"aws:EpochTime": "inf"}},
        {"ArnLike": {"aws:PrincipalArn": "alice"}},
        "x",
    ],
)
def test_an_unknown_condition_is_refused_and_fails_closed(condition: Any) -> None:
    """One that was stored by an earlier version neither grants anything nor lets through what it may have denied."""
    good = statement(Principal={"AWS": ALICE})
    assert problem_with(policy(good, statement(Condition=condition))) is not None
    assert ask(policy(statement(Condition=condition))) is SILENT
    assert ask(policy(good, statement(Condition=condition))) is ALLOWED
    assert ask(policy(good, statement("Deny", Condition=condition))) is DENIED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "no json",
        "[" * 100_000,
        '{"Version":"2012-10-17"}',
        '{"Version":"2012-10-17","Statement":[]}',
        '{"Version":"2012-10-17","Statement":["x"]}',
        '{"Version":"2030-01-01","Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}',
        '{"Deny":1,"Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}',
        '{"Statement":[{"Effect":"allow","Principal":"*","Action":"*","Resource":"*"}]}',
        '{"Statement":[{"Effect":"Deny","Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}',
    ],
)
def test_a_text_that_is_no_policy_denies_everything(text: str) -> None:
    assert problem_with(text) is not None
    assert ask(text) is DENIED


@pytest.mark.parametrize(
    "more",
    [
        {"Principal": None},
        {"NotPrincipal": "*"},
        {"Resource": "work"},
        {"Resource": []},
        {"Resource": "arn:aws:sqs:us-east-1"},
        {"NotResource": "*"},
        {"NotAction": "sqs:SendMessage"},
        {"When": "later"},
    ],
)
def test_statements_that_are_refused(more: dict[str, Any]) -> None:
    assert problem_with(policy(statement(**more))) is not None
    assert ask(policy(statement(**more))) is SILENT
    assert ask(policy(statement("Deny", **more))) is DENIED


def test_a_statement_without_a_resource_is_about_its_queue() -> None:
    assert applies(Resource=None) == MATCH
    assert applies(Resource=None, Action="sqs:DeleteMessage") == MISS


def test_variables_in_resources() -> None:
    own = statement(Resource=f"arn:aws:sqs:us-east-1:{ACCOUNT}:${{aws:username}}-*")
    queue = QUEUE.replace("work", "alice-inbox")
    assert ask(policy(own), resource=queue) is ALLOWED
    assert ask(policy(own), resource=queue, username="bob") is SILENT
    # What a user is called is never a pattern.
    assert ask(policy(own), resource=queue, username="*") is SILENT
    # Before that version it is no variable.
    assert ask(policy(own, version="2008-10-17"), resource=queue) is SILENT
    # Without a value an Allow does not apply, and a Deny does.
    assert ask(policy(own), resource=queue, username=None) is SILENT
    assert ask(policy({**own, "Effect": "Deny"}), resource=queue, username=None) is DENIED


def test_the_default_policy_of_the_console_opens_no_queue() -> None:
    text = policy(statement(Sid="__owner_statement", Principal={"AWS": ROOT}, Action="SQS:*"), version="2008-10-17")
    assert problem_with(text) is None
    assert ask(text) is SILENT


def test_only_over_tls() -> None:
    tls = statement("Deny", Condition={"Bool": {"aws:SecureTransport": "false"}})
    text = policy(statement(Principal={"AWS": ALICE}, Action="sqs:SendMessage"), tls)
    assert ask(text) is ALLOWED
    assert ask(text, SecureTransport="false") is DENIED
    assert ask(text, user="bob") is SILENT
    assert ask(text, user="bob", SecureTransport="false") is DENIED


# -- properties

_principals = st.sampled_from(["*", {"AWS": ALICE}, {"AWS": BOB}, {"AWS": ROOT}, {"Service": "sns.amazonaws.com"}])
_actions = st.sampled_from(["*", "sqs:*", "sqs:SendMessage", "sqs:Get*", ["sqs:ReceiveMessage", "sqs:SendMessage"]])
_resources = st.sampled_from(["*", QUEUE, f"{QUEUE}2", "arn:aws:sqs:*:*:w*"])
_conditions = st.sampled_from(
    [
        {},
        {"Bool": {"aws:SecureTransport": "true"}},
        {"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}},
        {"StringNearly": {"aws:username": "x"}},
    ]
)
_statements = st.lists(
    st.builds(
        lambda effect, principal, action, resource, condition: statement(
            effect, Principal=principal, Action=action, Resource=resource, Condition=condition
        ),
        st.sampled_from(["Allow", "Deny"]),
        _principals,
        _actions,
        _resources,
        _conditions,
    ),
    min_size=1,
    max_size=6,
)


@given(_statements, st.randoms(use_true_random=False))
def test_the_order_of_statements_is_irrelevant(statements: list[dict[str, Any]], random: Any) -> None:
    shuffled = list(statements)
    random.shuffle(shuffled)
    assert ask(policy(*statements)) is ask(policy(*shuffled))


@given(_statements)
def test_a_deny_that_applies_always_wins(statements: list[dict[str, Any]]) -> None:
    alone = [ask(policy(each)) for each in statements]
    expected = DENIED if DENIED in alone else ALLOWED if ALLOWED in alone else SILENT
    assert ask(policy(*statements)) is expected
    assert ask(policy(*statements, statement("Deny"))) is DENIED


@given(_statements, _statements)
def test_a_further_statement_never_takes_a_denial_back(
    statements: list[dict[str, Any]], more: list[dict[str, Any]]
) -> None:
    if ask(policy(*statements)) is DENIED:
        assert ask(policy(*statements, *more)) is DENIED


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_wildcards(pattern: str, text: str) -> None:
    def slowly(tokens: str, rest: str) -> bool:
        if not tokens:
            return not rest
        if tokens[0] == "*":
            return slowly(tokens[1:], rest) or (bool(rest) and slowly(tokens, rest[1:]))
        return bool(rest) and tokens[0] in ("?", rest[0]) and slowly(tokens[1:], rest[1:])

    assert matches_text(pattern, text, None) == slowly(pattern, text)


def test_a_pattern_of_many_stars_is_quick() -> None:
    assert not matches_text("*a" * 2_000 + "b", "a" * 4_000, None)
    assert not matches_arn("arn:" + "*" * 4_000 + "b", "arn:aws:sqs:r:1:" + "a" * 200, None)
