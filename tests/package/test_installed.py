"""The wheel in an environment of its own, without extras: what works there, and what says that it needs more."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

import pytest
import typer

from headrace.cli.main import app
from headrace.client.message import ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TOPIC
from headrace.model.extras import ARCHIVE, CLUSTER, SPARK, Extra
from headrace.model.failure_headers import REASON
from headrace.testing.process import BrokerProcess

from .conftest import Built, Installation, run
from .test_build import VERSION

pytestmark = pytest.mark.xdist_group("package")


class InstalledBroker(BrokerProcess):
    """`headrace serve` of the wheel."""

    def __init__(self, installation: Installation, data_dir: Path) -> None:
        super().__init__(data_dir, env={"PYTHONPATH": ""})
        self._installation = installation

    @property
    def command(self) -> list[str]:
        _python, _m, _headrace, *arguments = super().command
        return [str(self._installation.bin / "headrace"), *arguments]


@pytest.fixture(scope="module")
def broker(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledBroker]:
    with InstalledBroker(installation, tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


def test_nothing_is_installed_that_only_extras_need(installation: Installation, tmp_path: Path) -> None:
    code = "from importlib.metadata import distributions; print(*(each.name.lower() for each in distributions()))"
    names = set(run(installation.bin / "python", "-c", code, cwd=tmp_path).stdout.split())
    assert {"headrace", "kio", "confluent-kafka"} <= names
    assert not names & {"pip", "pytest", "hypothesis", "numpy", "pyarrow", "pandas", "pyspark", "aetcd", "grpcio"}


def test_it_says_its_version_and_commit(built: Built, installation: Installation, tmp_path: Path) -> None:
    commit = f" (commit {built.commit})" if built.commit else ""
    assert installation.run("--version", cwd=tmp_path).stdout == f"headrace {VERSION}{commit}\n"
    # Neither git nor anything else is needed for it.
    assert installation.run("--version", cwd=tmp_path, PATH="").stdout == f"headrace {VERSION}{commit}\n"


def test_messages_and_queues_work(
    built: Built, installation: Installation, broker: InstalledBroker, tmp_path: Path
) -> None:
    def headrace(*arguments: str, stdin: str = "") -> str:
        done = installation.run(*arguments, cwd=tmp_path, stdin=stdin, HEADRACE_BOOTSTRAP=broker.bootstrap)
        assert done.returncode == 0, done
        return done.stdout

    headrace("topic", "create", "tea", "--partitions", "2")
    headrace("produce", "tea", "--key-separator", ":", stdin="alice:green\nbob:black\n")
    consumed = headrace("consume", "tea", "--from-beginning", "--keys")
    assert sorted(consumed.splitlines()) == ["alice\tgreen", "bob\tblack"]
    headrace("queue", "create", "emails")
    headrace("queue", "send", "emails", "to alice")
    assert headrace("queue", "receive", "emails", "--wait", "20s") == "to alice\n"
    assert [*tmp_path.iterdir()] == []
    if built.commit is not None:
        assert f"this is headrace {VERSION} (commit {built.commit})" in broker.stderr


class Command(NamedTuple):
    """`needs` is the extra without which it only says what to install; `code` the exit code of one that needs none."""

    arguments: str = ""
    code: int = 0
    needs: Extra | None = None


COMMANDS = {
    "serve": Command("--etcd 127.0.0.1:1 --kafka-listen 127.0.0.1:0", needs=CLUSTER),
    "produce": Command("orders /dev/null"),
    "consume": Command("orders --from-beginning"),
    "demo": Command(),
    "bench": Command("produce --messages 100"),
    "doctor": Command(),
    "cluster dev": Command(needs=CLUSTER),
    "cluster dev start": Command("2 --data-dir nowhere", code=1),
    "cluster dev kill": Command("2 --data-dir nowhere", code=1),
    "cluster status": Command(),
    "cluster drain": Command("7", code=1),
    "cluster undrain": Command("7", code=1),
    "cluster rebalance": Command(),
    "cluster reassign": Command("orders --replicas 0"),
    "cluster throttle": Command("10MB"),
    "cluster upgrade": Command("--dry-run"),
    "cluster settings": Command(),
    "cluster alter": Command("--set log.cleaner.threads=1"),
    "cluster log-level": Command("info"),
    "topic create": Command("new-topic"),
    "topic list": Command(),
    "topic describe": Command("orders"),
    "topic alter": Command("orders --partitions 9"),
    "topic delete": Command("no-topic --yes", code=1),
    "topic truncate": Command("truncated --yes"),
    "group list": Command(),
    "group describe": Command("no-group", code=1),
    "group alter": Command("packing --set share.auto.offset.reset=earliest"),
    "group reset-offsets": Command("no-group --topic orders --to-earliest"),
    "group delete": Command("no-group --yes", code=1),
    "queue create": Command("new-queue"),
    "queue list": Command(),
    "queue describe": Command("jobs"),
    "queue alter": Command("jobs --visibility 1m"),
    "queue send": Command("jobs work"),
    "queue receive": Command("empty --wait 0s"),
    "queue peek": Command("empty"),
    "queue purge": Command("empty --yes"),
    "queue redrive": Command("jobs"),
    "queue delete": Command("no-queue --yes", code=1),
    "txn list": Command(),
    "txn describe": Command("no-transaction", code=1),
    "txn abort": Command("no-transaction --yes", code=1),
    "log dump": Command("{data}/orders-0"),
    "log verify": Command("{data}/orders-0"),
    "secure": Command("--data-dir nowhere", code=1),
    "user create": Command("new-user --generate"),
    "user list": Command(),
    "user passwd": Command("no-user --generate", code=1),
    "user delete": Command("no-user --yes", code=1),
    "user key create": Command("no-user", code=1),
    "user key list": Command("no-user", code=1),
    "user key delete": Command("no-user HRX --yes", code=1),
    "schedule list": Command(),
    "schedule run": Command("no-schedule", code=1),
    "schedule remove": Command("no-schedule --yes", code=1),
    "work": Command("no_module:client", code=2),
    "quota set": Command("--user alice --produce 5MB"),
    "quota list": Command(),
    "quota top": Command("--once"),
    "quota remove": Command("--user no-user", code=1),
    "link create": Command("eu --bootstrap 127.0.0.1:1", code=1),
    "link alter": Command("no-link --no-groups", code=1),
    "link list": Command(),
    "link describe": Command("no-link", code=1),
    "link pause": Command("no-link", code=1),
    "link resume": Command("no-link", code=1),
    "link delete": Command("no-link", code=1),
    "link promote": Command("no-topic", code=1),
    "link failover": Command("no-topic", code=1),
    "link reverse": Command("no-link no-topic --yes", code=1),
    "acl add": Command("alice --read topic:orders", code=1),
    "acl list": Command(code=1),
    "acl remove": Command("alice --yes", code=1),
    "acl explain": Command("alice read topic:orders"),
    "audit tail": Command(code=1),
    "audit search": Command(code=1),
    "topic shred": Command("no-topic --yes", code=1),
    "schema register": Command("s missing.avsc", code=1),
    "schema check": Command("s missing.avsc", code=1),
    "schema list": Command(),
    "schema show": Command("no-subject", code=1),
    "schema diff": Command("no-subject 1", code=1),
    "schema delete": Command("no-subject", code=1),
    "schema config": Command(),
    "schema mode": Command(),
    "schema export": Command(),
    "schema import": Command("missing.txt", code=1),
    "clients list": Command(),
    "clients show": Command("no-client", code=1),
    "clients subscribe": Command("all"),
    "clients unsubscribe": Command("no-subscription", code=1),
    "clients subscriptions": Command(),
    "health": Command(),
    "probe": Command("--once"),
    "top": Command("--once"),
    "cert dev": Command(),
    "cert show": Command("127.0.0.1:1", code=1),
    "pipeline init": Command("another.toml"),
    "pipeline preview": Command("revenue.toml", needs=SPARK),
    "pipeline validate": Command("revenue.toml", needs=SPARK),
    "pipeline explain": Command("revenue.toml", needs=SPARK),
    "pipeline run": Command("revenue.toml --once", needs=SPARK),
    "pipeline start": Command("revenue.toml", needs=SPARK),
    "pipeline stop": Command("revenue.toml --state-dir nowhere", code=1),
    "pipeline status": Command(),
    "pipeline lag": Command("revenue.toml"),
    "pipeline reset": Command("revenue.toml --to earliest --execute"),
    "pipeline archive": Command("orders --to archive --once", needs=ARCHIVE),
    "pipeline replay": Command("archive --to orders", needs=ARCHIVE),
    "pipeline dlq list": Command("orders.dlq"),
    "pipeline dlq replay": Command("orders.dlq"),
}


def commands_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, each in command.commands.items():
        if not hasattr(each, "commands") or each.invoke_without_command:
            yield " ".join((*path, name))
        if hasattr(each, "commands"):
            yield from commands_of(each, (*path, name))


def test_every_command_is_tried_here() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    assert set(commands_of(group)) == set(COMMANDS)


@pytest.fixture(scope="module")
def results(
    installation: Installation, broker: InstalledBroker, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, "CompletedProcess[str]"]:
    """Every command, run once."""
    folder = tmp_path_factory.mktemp("commands")

    def headrace(*arguments: str, stdin: str = "") -> "CompletedProcess[str]":
        return installation.run(*arguments, cwd=folder, stdin=stdin, HEADRACE_BOOTSTRAP=broker.bootstrap)

    origin = {ORIGINAL_TOPIC: "orders", ORIGINAL_PARTITION: "0", ORIGINAL_OFFSET: "0", REASON: "bad amount"}
    headers = ", ".join(f'"{name}": "{value}"' for name, value in origin.items())
    letter = f'{{"value": "a dead letter", "headers": {{{headers}}}}}'
    for *arguments, stdin in (
        ("produce", "orders", "one\ntwo\n"),
        ("produce", "truncated", "one\n"),
        ("produce", "orders.dlq", "--json", letter),
        ("queue", "create", "jobs", ""),
        ("queue", "create", "empty", ""),
        ("pipeline", "init", "revenue.toml", ""),
    ):
        done = headrace(*arguments, stdin=stdin)
        assert done.returncode == 0, done

    def try_out(name: str) -> "CompletedProcess[str]":
        arguments = COMMANDS[name].arguments.format(data=broker.data_dir).split()
        return headrace(*name.split(), *arguments)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(COMMANDS, pool.map(try_out, COMMANDS), strict=True))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_works_without_extras_or_says_what_to_install(
    name: str, results: dict[str, "CompletedProcess[str]"]
) -> None:
    command, done = COMMANDS[name], results[name]
    assert "Traceback" not in done.stderr
    assert "No module named" not in done.stderr
    if command.needs is not None:
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"headrace: {command.needs.sentence}\n"
    else:
        assert done.returncode == command.code, done


def test_dead_letters_are_read_and_sent_back(results: dict[str, "CompletedProcess[str]"]) -> None:
    assert "orders.dlq: 1 dead letter, " in results["pipeline dlq list"].stdout
    assert "orders.dlq: 1 dead letter sent back (1 to orders)" in results["pipeline dlq replay"].stdout
