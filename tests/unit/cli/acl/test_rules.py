"""The rules that options describe."""

import pytest

from headrace.cli.acl.rules import Grants, adding, parse_operation, parse_pattern, parse_resource, removing, rules
from headrace.cli.errors import BadArgument
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, Resource, ResourceType


def texts(*made: Acl) -> set[str]:
    return {str(each) for each in made}


def test_a_person_guesses_the_syntax():
    made = rules(["alice"], Grants(read=["topic:orders"], write=["topic:logs*"], group=["billing"]))
    assert texts(*made) == {
        "allow User:alice read on topic orders",
        "allow User:alice write on topic logs*",
        "allow User:alice read on group billing",
    }


def test_recipes_are_those_of_kafka():
    assert texts(*rules(["shop"], Grants(producer=["orders"], transactional_id=["shop-1"]))) == {
        "allow User:shop write on topic orders",
        "allow User:shop describe on topic orders",
        "allow User:shop create on topic orders",
        "allow User:shop write on transactional_id shop-1",
        "allow User:shop describe on transactional_id shop-1",
    }
    assert texts(*rules(["User:billing"], Grants(consumer=["orders"], group=["billing"]))) == {
        "allow User:billing read on topic orders",
        "allow User:billing describe on topic orders",
        "allow User:billing read on group billing",
    }


def test_any_operation_hosts_and_denials():
    made = rules(
        ["bob", "*"], Grants(operation=["delete", "alter-configs"], on=["orders"]), hosts=["10.0.0.0/8"], denies=True
    )
    assert texts(*made) == {
        f"deny User:{who} {operation} on topic orders from 10.0.0.0/8"
        for who in ("bob", "*")
        for operation in ("delete", "alter_configs")
    }


def test_an_administrator_may_do_everything():
    made = rules(["carol"], Grants(admin=True))
    assert {each.operation for each in made} == {AclOperation.ALL}
    assert {each.resource_type for each in made} == {
        ResourceType.TOPIC,
        ResourceType.GROUP,
        ResourceType.TRANSACTIONAL_ID,
        ResourceType.CLUSTER,
    }


@pytest.mark.parametrize(
    ("text", "kind", "pattern_type", "name"),
    [
        ("orders", ResourceType.TOPIC, PatternType.LITERAL, "orders"),
        ("queue:emails", ResourceType.TOPIC, PatternType.LITERAL, "emails"),
        ("Topic:logs*", ResourceType.TOPIC, PatternType.PREFIXED, "logs"),
        ("topic:*", ResourceType.TOPIC, PatternType.LITERAL, "*"),
        ("group:a:b", ResourceType.GROUP, PatternType.LITERAL, "a:b"),
        ("txn:etl", ResourceType.TRANSACTIONAL_ID, PatternType.LITERAL, "etl"),
        ("cluster", ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster"),
        ("cluster:*", ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster"),
    ],
)
def test_resources(text, kind, pattern_type, name):
    assert parse_pattern(text) == (kind, pattern_type, name)


def test_a_group_may_have_a_colon():
    (made,) = rules(["alice"], Grants(group=["app:1"]))
    assert made.resource_name == "app:1"


@pytest.mark.parametrize(
    ("grants", "words"),
    [
        (Grants(), "which permission?"),
        (Grants(consumer=["orders"]), "needs its group"),
        (Grants(operation=["read"]), "belong together"),
        (Grants(operation=["raed"], on=["t"]), "did you mean read?"),
        (Grants(read=["topc:orders"]), "did you mean topic:orders?"),
        (Grants(read=["topic:"]), "names no topic"),
        (Grants(read=["cluster"]), "read is no operation on a cluster"),
        (Grants(on=["cluster:other"], operation=["alter"]), "only one cluster"),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(grants, words):
    with pytest.raises(BadArgument, match=words.replace("?", r"\?")):
        rules(["alice"], grants)


def test_a_host_must_be_an_address():
    with pytest.raises(BadArgument, match="no host"):
        rules(["alice"], Grants(read=["t"]), hosts=["web-1"])


@pytest.mark.parametrize("text", ["describe-configs", "DESCRIBE_CONFIGS", "DescribeConfigs"])
def test_operations_may_be_written_in_several_ways(text):
    assert parse_operation(text) is AclOperation.DESCRIBE_CONFIGS


def test_a_resource_is_one():
    assert parse_resource("topic:orders") == Resource(ResourceType.TOPIC, "orders")
    with pytest.raises(BadArgument, match="many resources"):
        parse_resource("topic:ord*")


def test_the_command_that_adds_what_is_missing():
    topic, group = Resource(ResourceType.TOPIC, "orders"), Resource(ResourceType.GROUP, "my group")
    assert adding("User:alice", AclOperation.READ, topic) == "headrace acl add alice --read topic:orders"
    assert adding("alice", AclOperation.READ, group) == "headrace acl add alice --group 'my group'"
    assert (
        adding("alice", AclOperation.ALTER, Resource(ResourceType.CLUSTER, "kafka-cluster"))
        == "headrace acl add alice --operation alter --on cluster"
    )


def test_the_command_that_removes_a_rule():
    acl = Acl(
        ResourceType.TOPIC,
        PatternType.PREFIXED,
        "logs",
        "User:*",
        "10.0.0.1",
        AclOperation.ALL,
        Permission.DENY,
    )
    assert removing(acl) == "headrace acl remove '*' --operation all --on 'topic:logs*' --deny --host 10.0.0.1"
