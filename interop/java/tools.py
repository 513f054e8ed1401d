"""Kafka's command-line tools against a running broker, as an operator would use them."""

import json
import re
import time
from collections import defaultdict
from pathlib import Path

from apache import Java, Ran
from report import Report, expect

from headrace.testing.process import BrokerProcess

_TOOLS = "org.apache.kafka.tools"
_LEADS_ITSELF = re.compile(r"Partition: (\d+)\s+Leader: 0\s+Replicas: 0\s+Isr: 0\b")


class Tools:
    """The tools, each with the address of the broker filled in."""

    def __init__(self, java: Java, bootstrap: str) -> None:
        self._java = java
        self._bootstrap = bootstrap

    def run(self, main: str, *arguments: str, stdin: str = "") -> Ran:
        return self._java.run(main, "--bootstrap-server", self._bootstrap, *arguments, stdin=stdin)

    def ok(self, main: str, *arguments: str, stdin: str = "") -> Ran:
        ran = self.run(main, *arguments, stdin=stdin)
        expect(ran.code == 0, ran)
        return ran

    def refused(self, error: str, main: str, *arguments: str) -> Ran:
        """It must end with an error that names this exception of Kafka's."""
        ran = self.run(main, *arguments)
        expect(ran.code != 0 and error in ran.out + ran.err, ran)
        return ran

    def refused_or_told(self, error: str, main: str, *arguments: str) -> Ran:
        """It must name this exception of Kafka's; some tools print one and end well."""
        ran = self.run(main, *arguments)
        expect(error in ran.out + ran.err, ran)
        return ran

    def cluster(self, verb: str, *arguments: str) -> Ran:
        """ClusterTool takes its verb before the address."""
        return self._java.run(f"{_TOOLS}.ClusterTool", verb, "--bootstrap-server", self._bootstrap, *arguments)

    def topics(self, *arguments: str) -> Ran:
        return self.ok(f"{_TOOLS}.TopicCommand", *arguments)

    def topics_refused(self, error: str, *arguments: str) -> Ran:
        return self.refused(error, f"{_TOOLS}.TopicCommand", *arguments)

    def configs(self, *arguments: str) -> Ran:
        return self.ok("kafka.admin.ConfigCommand", *arguments)

    def configs_refused(self, error: str, *arguments: str) -> Ran:
        return self.refused(error, "kafka.admin.ConfigCommand", *arguments)

    def offsets(self, *arguments: str) -> dict[str, dict[int, int]]:
        """Topic -> partition -> offset, as GetOffsetShell prints them."""
        ran = self.ok(f"{_TOOLS}.GetOffsetShell", *arguments)
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for line in ran.lines:
            topic, partition, offset = line.rsplit(":", 2)
            found[topic][int(partition)] = int(offset)
        return dict(found)

    def consume(self, topic: str, *arguments: str, partition: int = 0) -> list[str]:
        """What the console consumer prints of one partition, without a group."""
        which = ("--topic", topic, "--partition", str(partition))
        return self.ok(f"{_TOOLS}.consumer.ConsoleConsumer", *which, *arguments).lines

    def produce(self, topic: str, text: str, *arguments: str) -> None:
        ran = self.ok(f"{_TOOLS}.ConsoleProducer", "--topic", topic, *arguments, stdin=text)
        expect("ERROR" not in ran.err, ran)

    def load(self, topic: str, count: int, **properties: str) -> None:
        """`count` records of 1,000 bytes with ProducerPerformance, which takes the address as a property."""
        given = [f"bootstrap.servers={self._bootstrap}"]
        given += [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
        size = ("--num-records", str(count), "--record-size", "1000", "--throughput", "-1")
        ran = self._java.run(f"{_TOOLS}.ProducerPerformance", "--topic", topic, *size, "--producer-props", *given)
        expect(ran.code == 0 and f"{count} records sent" in ran.out and "Exception" not in ran.out + ran.err, ran)


def check_tools(report: Report, java: Java, broker: BrokerProcess, scratch: Path) -> None:
    tools = Tools(java, broker.bootstrap)
    _check_cluster(report, tools, broker)
    _check_topics(report, tools)
    _check_configs(report, tools)
    _check_load(report, tools)
    _check_console(report, tools)
    _check_offsets(report, tools)
    _check_records(report, tools, scratch)
    _check_share_groups(report, tools)
    _check_log_dirs(report, tools, broker)
    _check_reassignment(report, tools, broker, scratch)
    _check_kafka_settings(report, tools)
    _check_without_security(report, tools)


def _check_cluster(report: Report, tools: Tools, broker: BrokerProcess) -> None:
    with report.check("BrokerApiVersionsCommand finds the APIs of a Kafka 4.1 broker"):
        out = tools.ok(f"{_TOOLS}.BrokerApiVersionsCommand").out
        expect(f"{broker.bootstrap} (id: 0 rack: null isFenced: false)" in out, out)
        for api in (
            "Produce(0): 0 to 13 [usable: 13]",
            "Fetch(1): 4 to 18 [usable: 18]",
            "DescribeTopicPartitions(75)",
        ):
            expect(api in out, out)
    with report.check("ClusterTool shows the cluster's id and its one endpoint"):
        told = tools.cluster("cluster-id")
        expect(re.search(r"Cluster ID: \S{22}\n", told.out) is not None, told)
        listed = tools.cluster("list-endpoints")
        expect(
            re.search(rf"0\s+127\.0\.0\.1\s+{broker.port}\s+null\s+unfenced\s+broker", listed.out) is not None, listed
        )


def _check_topics(report: Report, tools: Tools) -> None:
    with report.check("TopicCommand --create with partitions and settings"):
        ran = tools.topics(
            "--create", "--topic", "admin", "--partitions", "3", "--replication-factor", "1",
            "--config", "retention.ms=3600000", "--config", "cleanup.policy=compact",
        )  # fmt: skip
        expect("Created topic admin." in ran.out, ran)
    with report.check("TopicCommand --create refuses a name that is taken, and --if-not-exists does not"):
        tools.topics_refused("TopicExistsException", "--create", "--topic", "admin")
        tools.topics("--create", "--if-not-exists", "--topic", "admin")
    with report.check("TopicCommand --create refuses two replicas on one broker, and characters that no name has"):
        create = ("--create", "--topic")
        tools.topics_refused("InvalidReplicationFactorException", *create, "x", "--replication-factor", "2")
        tools.topics_refused("InvalidTopicException", *create, "a b")
    with report.check("TopicCommand --describe shows partitions, leader and settings"):
        ran = tools.topics("--describe", "--topic", "admin")
        expect("PartitionCount: 3\tReplicationFactor: 1" in ran.out, ran)
        expect("retention.ms=3600000" in ran.out and "cleanup.policy=compact" in ran.out, ran)
        expect(_LEADS_ITSELF.findall(ran.out) == ["0", "1", "2"], ran)
    with report.check("TopicCommand --alter adds partitions and refuses to take any away"):
        tools.topics("--alter", "--topic", "admin", "--partitions", "5")
        tools.topics_refused("InvalidPartitionsException", "--alter", "--topic", "admin", "--partitions", "2")
        ran = tools.topics("--describe", "--topic", "admin")
        expect(_LEADS_ITSELF.findall(ran.out) == ["0", "1", "2", "3", "4"], ran)
    with report.check("TopicCommand --describe finds overrides, and no partition in trouble"):
        expect("Topic: admin" in tools.topics("--describe", "--topics-with-overrides").out, "admin is missing")
        expect(tools.topics("--describe", "--under-replicated-partitions").out.strip() == "", "under-replicated")
        expect(tools.topics("--describe", "--unavailable-partitions").out.strip() == "", "unavailable")
    with report.check("TopicCommand --delete, and --list no longer shows the topic"):
        tools.topics("--create", "--topic", "gone")
        expect({"admin", "gone"} <= set(tools.topics("--list").lines), "a topic is not listed")
        tools.topics("--delete", "--topic", "gone")
        expect("gone" not in tools.topics("--list").lines, "a deleted topic is listed")
        tools.refused("does not exist", f"{_TOOLS}.TopicCommand", "--delete", "--topic", "gone")


def _check_configs(report: Report, tools: Tools) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "admin")
    with report.check("ConfigCommand --describe shows what is set, and with --all every default"):
        ran = tools.configs("--describe", *topic)
        expect("retention.ms=3600000" in ran.out and "segment.bytes" not in ran.out, ran)
        ran = tools.configs("--describe", "--all", *topic)
        expect("segment.bytes=1073741824" in ran.out and "DEFAULT_CONFIG:log.segment.bytes=1073741824" in ran.out, ran)
    with report.check("ConfigCommand --alter sets, sets lists, and goes back to the default"):
        tools.configs("--alter", *topic, "--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")
        tools.configs("--alter", *topic, "--delete-config", "retention.ms")
        ran = tools.configs("--describe", *topic)
        expect("max.message.bytes=2000" in ran.out and "cleanup.policy=compact,delete" in ran.out, ran)
        expect("retention.ms=" not in ran.out.replace("delete.retention.ms", ""), ran)
    with report.check("ConfigCommand --alter refuses invalid values and unknown settings with the reason"):
        ran = tools.configs_refused("InvalidConfigurationException", "--alter", *topic, "--add-config", "flush.ms=soon")
        expect("flush.ms" in ran.out + ran.err, ran)
        tools.configs_refused("InvalidConfigurationException", "--alter", *topic, "--add-config", "nonsense=1")
    with report.check("ConfigCommand describes the broker, and changes a setting of it while it runs"):
        one = ("--entity-type", "brokers", "--entity-name", "0")
        expect("log.retention.ms=604800000" in tools.configs("--describe", "--all", *one).out, "no default")
        tools.configs("--alter", *one, "--add-config", "log.retention.ms=7200000")
        ran = tools.configs("--describe", *one)
        expect("log.retention.ms=7200000" in ran.out and "DYNAMIC_BROKER_CONFIG" in ran.out, ran)
        tools.configs("--alter", *one, "--delete-config", "log.retention.ms")
        expect("log.retention.ms" not in tools.configs("--describe", *one).out, "still set")


def _check_load(report: Report, tools: Tools) -> None:
    loads = {
        "acks-0": {"acks": "0", "enable_idempotence": "false"},
        "acks-1": {"acks": "1", "enable_idempotence": "false"},
        "idempotent": {},
        **{codec: {"compression_type": codec} for codec in ("gzip", "snappy", "lz4", "zstd")},
    }
    count = 20_000
    for name, properties in loads.items():
        with report.check(f"ProducerPerformance, {count:,} records of 1,000 bytes, {name}"):
            tools.topics("--create", "--topic", f"load-{name}", "--partitions", "2")
            tools.load(f"load-{name}", count, **properties)
    with report.check("GetOffsetShell counts every record of every load"):
        totals = {topic: sum(ends.values()) for topic, ends in tools.offsets("--topic", "load-.*").items()}
        expect(totals == {f"load-{name}": count for name in loads}, totals)


def _check_console(report: Report, tools: Tools) -> None:
    with report.check("ConsoleProducer and ConsoleConsumer: keys, headers and nulls, there and back"):
        tools.topics("--create", "--topic", "console", "--partitions", "1")
        text = "h1:v1,h2:NULL\tk1\tone\nNULL\tNULL\ttwo\nh3:\tk3\tNULL\n"
        parse = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
        tools.produce("console", text, *_properties(*parse))
        shown = ("print.key=true", "print.headers=true", "print.offset=true", "null.literal=NULL")
        lines = tools.consume("console", "--offset", "earliest", "--max-messages", "3", *_properties(*shown))
        wanted = [
            "Offset:0\th1:v1,h2:NULL\tk1\tone",
            "Offset:1\tNO_HEADERS\tNULL\ttwo",
            "Offset:2\th3:\tk3\tNULL",
        ]
        expect(lines == wanted, lines)
    with report.check("ConsoleConsumer from an offset, from the end, and read_committed"):
        expect(tools.consume("console", "--offset", "1", "--max-messages", "1") == ["two"], "not from the offset")
        committed = ("--isolation-level", "read_committed", "--offset", "earliest", "--max-messages", "2")
        expect(tools.consume("console", *committed) == ["one", "two"], "not what was committed")
        expect(tools.consume("console", "--offset", "latest", "--timeout-ms", "1500") == [], "something at the end")


def _properties(*pairs: str) -> list[str]:
    return [part for pair in pairs for part in ("--property", pair)]


def _check_offsets(report: Report, tools: Tools) -> None:
    with report.check("GetOffsetShell by special times and by time"):
        tools.topics("--create", "--topic", "times", "--partitions", "2")
        tools.produce("times", "a\nb\nc\n", "--sync", "--producer-property", "partitioner.ignore.keys=true")
        between_ms = round(time.time() * 1000)
        tools.produce("times", "d\n")
        ends = tools.offsets("--topic", "times")["times"]
        expect(sum(ends.values()) == 4, ends)
        expect(tools.offsets("--topic", "times", "--time", "earliest") == {"times": {0: 0, 1: 0}}, "earliest")
        later = tools.offsets("--topic", "times", "--time", str(between_ms))["times"]
        expect(len(later) == 1 and all(offset == ends[at] - 1 for at, offset in later.items()), later)
        largest = tools.offsets("--topic", "times", "--time", "max-timestamp")["times"]
        expect(all(offset == ends[at] - 1 for at, offset in largest.items()), largest)
        expect(tools.offsets("--topic", "times", "--time", str(between_ms + 3_600_000)) == {}, "in an hour")
        expect(tools.offsets("--topic", "times", "--time", "latest-tiered") == {}, "nothing is tiered")


def _check_share_groups(report: Report, tools: Tools) -> None:
    command, group = f"{_TOOLS}.consumer.group.ShareGroupCommand", ("--group", "sharing")
    sent = {str(number) for number in range(20)}

    def consume() -> set[str]:
        limits = ("--max-messages", "10", "--timeout-ms", "30000")
        return set(tools.ok(f"{_TOOLS}.consumer.ConsoleShareConsumer", "--topic", "shared", *group, *limits).lines)

    with report.check("ConsoleShareConsumer: two that come one after the other share what there is"):
        tools.topics("--create", "--topic", "shared", "--partitions", "3")
        earliest = ("--add-config", "share.auto.offset.reset=earliest")
        tools.configs("--alter", "--entity-type", "groups", "--entity-name", "sharing", *earliest)
        tools.produce("shared", "\n".join(sorted(sent)) + "\n")
        first, second = consume(), consume()
        expect(len(first) == len(second) == 10 and first | second == sent, (first, second))
    with report.check("ShareGroupCommand lists, describes, forgets offsets and deletes"):
        expect("sharing" in tools.ok(command, "--list").lines, "not listed")
        starts = re.findall(r"sharing\s+shared\s+\d\s+(\d+)", tools.ok(command, "--describe", *group).out)
        expect(len(starts) == 3 and sum(map(int, starts)) == 20, starts)
        expect("Empty" in tools.ok(command, "--describe", *group, "--state").out, "not empty")
        expect("Successful" in tools.ok(command, "--delete-offsets", *group, "--topic", "shared").out, "not forgotten")
        expect("successful" in tools.ok(command, "--delete", *group).out, "not deleted")
        expect("sharing" not in tools.ok(command, "--list").lines, "still listed")


def _check_records(report: Report, tools: Tools, scratch: Path) -> None:
    def delete(**offsets: int) -> Ran:
        wanted = [{"topic": topic.replace("_", "-"), "partition": 0, "offset": at} for topic, at in offsets.items()]
        file = scratch / "delete.json"
        file.write_text(json.dumps({"version": 1, "partitions": wanted}))
        return tools.ok(f"{_TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(file))

    with report.check("DeleteRecordsCommand moves the start, to an offset and to the end"):
        end = tools.offsets("--topic", "load-acks-0")["load-acks-0"][0]
        ran = delete(console=2, load_acks_0=-1)
        expect("partition: console-0\tlow_watermark: 2" in ran.out, ran)
        expect(f"partition: load-acks-0-0\tlow_watermark: {end}" in ran.out, ran)
        starts = tools.offsets("--time", "earliest")
        expect((starts["console"][0], starts["load-acks-0"][0]) == (2, end), starts)
    with report.check("DeleteRecordsCommand refuses an offset past the end"):
        ran = delete(console=4)
        expect("OffsetOutOfRangeException" in ran.out + ran.err, ran)


def _check_log_dirs(report: Report, tools: Tools, broker: BrokerProcess) -> None:
    with report.check("LogDirsCommand tells the size of every partition as it is on disk"):
        ran = tools.ok(f"{_TOOLS}.LogDirsCommand", "--describe", "--topic-list", "load-acks-1,load-gzip")
        ((described,),) = [broker["logDirs"] for broker in json.loads(ran.lines[-1])["brokers"]]
        told = {row["partition"]: row["size"] for row in described["partitions"]}
        names = [f"load-{name}-{at}" for name in ("acks-1", "gzip") for at in (0, 1)]
        on_disk = {name: sum(file.stat().st_size for file in (broker.data_dir / name).glob("*.log")) for name in names}
        expect(told == on_disk and described["error"] is None, (told, on_disk))
        expect(Path(described["logDir"]) == broker.data_dir, described["logDir"])


def _check_reassignment(report: Report, tools: Tools, broker: BrokerProcess, scratch: Path) -> None:
    command = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
    file = scratch / "reassign.json"

    def run(verb: str, *arguments: str, log_dir: str = "any") -> Ran:
        moves = [{"topic": "console", "partition": 0, "replicas": [0], "log_dirs": [log_dir]}]
        file.write_text(json.dumps({"version": 1, "partitions": moves}))
        return tools.ok(command, "--reassignment-json-file", str(file), verb, *arguments)

    with report.check("ReassignPartitionsCommand --execute with throttles, --verify takes them back"):
        limits = ("--throttle", "1000000", "--replica-alter-log-dirs-throttle", "1000000")
        expect("Successfully started" in run("--execute", *limits, log_dir=str(broker.data_dir)).out, "not started")
        ran = run("--verify", log_dir=str(broker.data_dir))
        expect("is completed" in ran.out and "Clearing topic-level throttles" in ran.out, ran)
        left = tools.configs("--describe", "--entity-type", "brokers", "--entity-name", "0").out
        expect("throttled" not in left, left)
    with report.check("ReassignPartitionsCommand --list"):
        expect("No partition reassignments found." in tools.ok(command, "--list").out, "something moves")


def _check_kafka_settings(report: Report, tools: Tools) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "with-settings")
    with report.check("TopicCommand and ConfigCommand take Kafka's settings that have no effect, and show them"):
        create = ("--create", "--topic", "with-settings", "--partitions", "3")
        tools.topics(*create, "--config", "preallocate=true", "--config", "local.retention.ms=1000")
        tools.configs("--alter", *topic, "--add-config", "leader.replication.throttled.replicas=*")
        ran = tools.configs("--describe", *topic)
        for wanted in ("preallocate=true", "local.retention.ms=1000", "leader.replication.throttled.replicas=*"):
            expect(wanted in ran.out, ran)
        tools.configs("--alter", *topic, "--delete-config", "preallocate,leader.replication.throttled.replicas")
        expect("preallocate" not in tools.configs("--describe", *topic).out, "still set")
    with report.check("ConfigCommand: a setting of the broker without effect, refusals of what would be unsafe"):
        one = ("--entity-type", "brokers", "--entity-name", "0")
        tools.configs("--alter", *one, "--add-config", "num.io.threads=16")
        expect("num.io.threads=16" in tools.configs("--describe", *one).out, "not shown")
        tools.configs("--alter", *one, "--delete-config", "num.io.threads")
        for name in ("remote.storage.enable", "unclean.leader.election.enable"):
            ran = tools.configs_refused("is not supported", "--alter", *topic, "--add-config", f"{name}=true")
            tools.configs("--alter", *topic, "--add-config", f"{name}=false")
    with report.check("ConfigCommand shows and changes the levels of the broker's loggers"):
        loggers = ("--entity-type", "broker-loggers", "--entity-name", "0")
        expect("root=INFO" in tools.configs("--describe", *loggers).out, "no root logger")
        tools.configs("--alter", *loggers, "--add-config", "headrace.kafka.server=DEBUG")
        expect("headrace.kafka.server=DEBUG" in tools.configs("--describe", *loggers).out, "not changed")
        tools.configs("--alter", *loggers, "--delete-config", "headrace.kafka.server")
    with report.check("ConfigCommand and ClientMetricsCommand find no subscriptions to metrics of clients"):
        tools.configs("--describe", "--entity-type", "client-metrics")
        expect(tools.ok(f"{_TOOLS}.ClientMetricsCommand", "--list").out.strip() == "", "a subscription is listed")


def _check_without_security(report: Report, tools: Tools) -> None:
    with report.check("AclCommand says that security is disabled"):
        acls = f"{_TOOLS}.AclCommand"
        tools.refused_or_told("SecurityDisabledException", acls, "--list")
        grant = ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "console")
        tools.refused_or_told("SecurityDisabledException", acls, *grant)
        tools.refused_or_told("SecurityDisabledException", acls, "--remove", "--topic", "console", "--force")
    with report.check("ConfigCommand makes a user, and sets, shows and removes quotas"):
        for kind in ("users", "clients", "ips"):
            tools.configs("--describe", "--entity-type", kind)
        user = ("--entity-type", "users", "--entity-name", "alice")
        tools.configs("--alter", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
        for entity, quota in (
            (user, "producer_byte_rate=1000"),
            (("--entity-type", "users", "--entity-default"), "request_percentage=12.5"),
            ((*user, "--entity-type", "clients", "--entity-default"), "consumer_byte_rate=2000"),
            (("--entity-type", "clients", "--entity-name", "app"), "controller_mutation_rate=0.5"),
            (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate=7"),
        ):
            name, value = quota.split("=")
            tools.configs("--alter", *entity, "--add-config", quota)
            shown = tools.configs("--describe", *entity).out
            expect(f"{name}={float(value)}" in shown, shown)
            tools.configs("--alter", *entity, "--delete-config", name)
            shown = tools.configs("--describe", *entity).out
            expect(name not in shown, shown)
        tools.configs_refused("greater than 0", "--alter", *user, "--add-config", "producer_byte_rate=0")
    with report.check("DelegationTokenCommand is told that tokens need authentication"):
        ran = tools.run(f"{_TOOLS}.DelegationTokenCommand", "--describe", "--command-config", "/dev/null")
        expect("DelegationToken" in ran.out + ran.err and "not allowed" in ran.out + ran.err, ran)
    with report.check("ClusterTool unregister is told how a broker leaves"):
        ran = tools.cluster("unregister", "--id", "0")
        expect("broker.draining" in ran.out + ran.err, ran)
