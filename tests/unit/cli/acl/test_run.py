"""`headrace acl` against a real broker with authorization."""

import json
import shlex
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.main import app
from headrace.testing import Broker
from headrace.wire import Cluster

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # The commands connect without a login here, and are the administrator.
    with Broker(settings={"authorization.enable": True, "super.users": "User:ANONYMOUS;User:root"}) as one:
        with Cluster(one.bootstrap) as cluster:
            cluster.set_password("alice", "secret", "SCRAM-SHA-256")
        yield one


@pytest.fixture
def run(broker: Broker) -> Iterator[Run]:
    def command(typed: str, *, fails: bool = False) -> str:
        result = CliRunner().invoke(app, shlex.split(typed), env={"HEADRACE_BOOTSTRAP": broker.bootstrap}, input="")
        if isinstance(result.exception, CommandFailed | BadArgument):
            raise result.exception
        assert (result.exit_code != 0) is fails, result.output
        return result.output

    yield command
    with Cluster(broker.bootstrap) as cluster:
        cluster.delete_acls(cluster.acls())


def test_rules_are_added_listed_and_removed(run: Run) -> None:
    added = run("acl add alice --read topic:orders --write 'topic:logs*' --group billing")
    assert added.count("Added: ") == 3
    assert "Exists already: allow User:alice read on topic orders" in run("acl add alice --read orders")
    listed = run("acl list")
    assert listed.split() == [
        *("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "HOST"),
        *("User:alice", "allow", "read", "topic:orders", "*"),
        *("User:alice", "allow", "write", "topic:logs*", "*"),
        *("User:alice", "allow", "read", "group:billing", "*"),
    ]
    removed = run("acl remove alice --read topic:orders --yes")
    assert removed == "Removed: allow User:alice read on topic orders\n"
    assert run("acl remove alice --yes --json").count('"principal"') == 2
    assert "There are no ACLs" in run("acl list")


def test_a_list_has_filters(run: Run) -> None:
    run("acl add alice bob --read topic:orders")
    run("acl add '*' --read 'topic:ord*' --deny --host 10.1.0.0/16")
    run("acl add bob --operation all --on topic:'*'")

    def found(options: str) -> list[tuple[str, str, str]]:
        rows = json.loads(run(f"acl list --json {options}"))
        return sorted((each["principal"], each["permission"], each["resource_name"]) for each in rows)

    assert found("alice") == [("User:alice", "allow", "orders")]
    assert len(found("--on topic:orders")) == 4
    assert found("--on topic:other") == [("User:bob", "allow", "*")]
    assert found("--on 'topic:ord*'") == [("User:*", "deny", "ord")]
    assert found("--deny") == [("User:*", "deny", "ord")]
    assert found("--operation all") == [("User:bob", "allow", "*")]
    assert found("--host 10.1.0.0/16") == [("User:*", "deny", "ord")]
    assert "No ACL is like that" in run("acl list carol")


def test_removing_asks_and_names_the_nearest_user(run: Run) -> None:
    run("acl add alice --read topic:orders")
    with pytest.raises(BadArgument, match=r"removes 1 rule .* add --yes"):
        run("acl remove alice")
    with pytest.raises(CommandFailed, match="did you mean alice"):
        run("acl remove alcie --yes")
    with pytest.raises(CommandFailed, match="none was removed"):
        run("acl remove alice --write topic:orders --yes")
    assert "User:alice" in run("acl list")


def test_explaining_names_the_rule_or_the_command_that_adds_it(run: Run) -> None:
    missing = run("acl explain alice read topic:orders", fails=True)
    assert missing.startswith("no: no rule allows User:alice from any host to read on topic orders\n")
    command = missing.rpartition(": ")[2].strip()
    assert command == "headrace acl add alice --read topic:orders"
    run(command.removeprefix("headrace "))
    assert "yes: a rule allows it: allow User:alice read on topic orders" in run("acl explain alice read topic:orders")
    assert "read on topic orders" in run("acl explain alice describe topic:orders")
    run("acl add '*' --read 'topic:o*' --deny")
    denied = run("acl explain alice read topic:orders", fails=True)
    assert "no: a rule denies it: deny User:* read on topic o*" in denied
    run(f"{denied.rpartition(': ')[2].strip().removeprefix('headrace ')} --yes")
    assert "yes: " in run("acl explain alice read topic:orders")
    assert "yes: User:root is a super user" in run("acl explain root alter cluster")


def test_explaining_looks_at_hosts_that_are_given(run: Run) -> None:
    run("acl add alice --read topic:orders --host 10.0.0.0/8")
    assert "with --host" in run("acl explain alice read topic:orders", fails=True)
    assert "yes: " in run("acl explain alice read topic:orders --host 10.1.2.3")
    answer = json.loads(run("acl explain alice read topic:orders --host 11.1.2.3 --json", fails=True))
    assert (answer["allowed"], answer["rule"]) == (False, None)


def test_a_misspelt_user_is_hinted_at(run: Run) -> None:
    assert "did you mean alice?" in run("acl add alicee --read topic:orders")


def test_allow_everyone_is_taken_into_account() -> None:
    settings = {
        "authorization.enable": True,
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": True,
    }
    with Broker(settings=settings) as broker:
        result = CliRunner().invoke(
            app, ["acl", "explain", "bob", "read", "orders"], env={"HEADRACE_BOOTSTRAP": broker.bootstrap}
        )
    assert "allow.everyone.if.no.acl.found is true" in result.output


def test_without_authorization_there_is_nothing_to_list() -> None:
    with Broker() as broker:
        environment = {"HEADRACE_BOOTSTRAP": broker.bootstrap}
        result = CliRunner().invoke(app, ["acl", "list"], env=environment)
        assert "authorization is off" in str(result.exception)
        result = CliRunner().invoke(app, ["acl", "explain", "bob", "read", "orders"], env=environment)
        assert result.output.startswith("yes: authorization is off")
