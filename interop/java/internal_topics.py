"""Kafka's own tools read the internal topics: the console consumer with its formatters, and the dump of the files."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

from apache import Java
from confluent_kafka import Producer
from report import Report, expect
from storage import Dump
from tools import Tools

from headrace.coordinator.coordinator import partition_for
from headrace.groups.consumer_records import ClassicMember, MemberKey, SubscriptionValue
from headrace.groups.kafka_records import KafkaGroupFormat
from headrace.groups.records import ClassicValue, GroupKey, MemberValue, OffsetKey, OffsetValue
from headrace.groups.share_records import ShareValue
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.testing.process import BrokerProcess

_CONSUMER = "org.apache.kafka.tools.consumer"
_GROUPS = {"classic": "read-by-classic", "consumer": "read-by-consumer"}
_SHARED = "read-by-share"
_TRANSACTIONAL_ID = "written-once"
_TOPIC = "internal"
_PARTITIONS = 50
_TIMEOUT_S = 60.0
_COMPLETE_COMMIT = 4


def check_internal_topics(report: Report, java: Java, broker: BrokerProcess) -> None:
    tools = Tools(java, broker.bootstrap)
    _make_groups(tools)
    _make_transaction(broker)
    for protocol, group in _GROUPS.items():
        with report.check(f"OffsetsMessageFormatter shows what a {protocol} group committed"):
            shown = _formatted(tools, "__consumer_offsets", group, "OffsetsMessageFormatter")
            offsets = [one for one in shown if one["key"]["data"].get("group") == group and one["value"]]
            expect(bool(offsets), shown)
            expect({one["key"]["data"]["topic"] for one in offsets} == {_TOPIC}, offsets)
            expect(sum(_last(offsets).values()) == 3, offsets)
    with report.check("GroupMetadataMessageFormatter shows the members of a classic group, and that they left"):
        shown = _formatted(tools, "__consumer_offsets", _GROUPS["classic"], "GroupMetadataMessageFormatter")
        shown = [one for one in shown if one["key"]["data"]["group"] == _GROUPS["classic"]]
        values = [one["value"]["data"] for one in shown if one["value"]]
        expect(max(len(value["members"]) for value in values) == 1 and values[-1]["members"] == [], shown)
        (member,) = next(value["members"] for value in values if value["members"])
        expect(member["clientId"] == "console-consumer" and member["sessionTimeout"] == 45000, member)
    with report.check("TransactionLogMessageFormatter shows a transaction from its start to its end"):
        shown = _formatted(tools, "__transaction_state", _TRANSACTIONAL_ID, "TransactionLogMessageFormatter")
        values = [one["value"]["data"] for one in shown if one["key"]["data"]["transactionalId"] == _TRANSACTIONAL_ID]
        expect([value["transactionStatus"] for value in values] == [0, 1, 2, _COMPLETE_COMMIT], values)
        expect(values[1]["transactionPartitions"][0]["topic"] == _TOPIC, values)


def check_internal_files(report: Report, java: Java, data_dir: Path) -> None:
    """The files of a broker that is stopped."""
    dump = Dump(java)
    with report.check("DumpLogSegments --offsets-decoder reads the records of all kinds of groups"):
        seen: set[str] = set()
        for group in (*_GROUPS.values(), _SHARED):
            seen |= _dumped(dump, data_dir, "__consumer_offsets", group, "--offsets-decoder")
        expect(seen >= {"1", "2", "3", "5", "6", "7", "8", "10", "11", "12", "13", "14"}, sorted(seen))
    with report.check("DumpLogSegments --transaction-log-decoder reads the records of transactions"):
        seen = _dumped(dump, data_dir, "__transaction_state", _TRANSACTIONAL_ID, "--transaction-log-decoder")
        expect(seen == {"0"}, sorted(seen))


def check_rare_records(report: Report, java: Java, scratch: Path) -> None:
    """What the broker writes so seldom that no client here makes it do so."""
    long = "m" * 20_000
    member = MemberValue(long, "i", "c", "/h", 10, 20, b"sub", b"as")
    wants = SubscriptionValue(client_id="c", classic=ClassicMember(6000, (("range", b"said"),)))
    written = KafkaGroupFormat()
    entries = [
        *written.write(OffsetKey("g", "t", 0), OffsetValue(1, -1, "m", 2, expire_ms=3)),
        *written.write(GroupKey("g"), ClassicValue("consumer", 7, "range", long, 8, (member,))),
        *written.write(MemberKey("g", "m"), wants),
        *written.write(GroupKey("s"), ShareValue(2, 1, bytes(range(8)), (UUID(int=1), UUID(int=2)))),
        *written.write(GroupKey("s"), ShareValue(1)),
    ]
    folder = scratch / "__consumer_offsets-0"
    folder.mkdir()
    file = folder / "00000000000000000000.log"
    file.write_bytes(build_batch([Record(0, 1, key, value) for key, value in entries]))
    with report.check("DumpLogSegments --offsets-decoder reads expiry times, long names and classic members"):
        out = Dump(java)([file], "--offsets-decoder").out
        expect("skipping" not in out, out)
        for part in (
            '"version":"1","data":{"offset":1,"metadata":"m","commitTimestamp":2,"expireTimestamp":3}',
            '"version":"4","data":{"protocolType":"consumer","generation":7,"protocol":"range","leader":"mmm',
            '"version":"0","data":{"epoch":2,"metadataHash":283686952306183}',
            '"version":"0","data":{"epoch":1,"metadataHash":0}',
            '"classicMemberMetadata":{"sessionTimeoutMs":6000,"supportedProtocols":[{"name":"range","metadata":"c2FpZA=="}]}',
        ):
            expect(part in out, (part, [line[:300] for line in out.splitlines()]))


def _make_groups(tools: Tools) -> None:
    tools.topics("--create", "--topic", _TOPIC, "--partitions", "2")
    tools.produce(_TOPIC, "a\nb\nc\n")
    for protocol, group in _GROUPS.items():
        tools.ok(
            f"{_CONSUMER}.ConsoleConsumer", "--topic", _TOPIC, "--group", group, "--from-beginning",
            "--max-messages", "3", "--consumer-property", f"group.protocol={protocol}",
        )  # fmt: skip
    earliest = ("--add-config", "share.auto.offset.reset=earliest")
    tools.configs("--alter", "--entity-type", "groups", "--entity-name", _SHARED, *earliest)
    limits = ("--max-messages", "3", "--timeout-ms", "30000")
    tools.ok(f"{_CONSUMER}.ConsoleShareConsumer", "--topic", _TOPIC, "--group", _SHARED, *limits)


def _make_transaction(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": _TRANSACTIONAL_ID})
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"d")
    producer.commit_transaction(_TIMEOUT_S)


def _formatted(tools: Tools, topic: str, key: str, formatter: str) -> list[dict[str, Any]]:
    """The records of the partition that has a key, as a formatter shows them: objects without a separator."""
    text = "".join(
        tools.consume(
            topic, "--offset", "earliest", "--timeout-ms", "4000", "--formatter", f"{_CONSUMER}.{formatter}",
            partition=partition_for(key, _PARTITIONS),
        )
    )  # fmt: skip
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        one, at = decoder.raw_decode(text, at)
        found.append(one)
    return found


def _last(offsets: list[dict[str, Any]]) -> dict[int, int]:
    return {one["key"]["data"]["partition"]: one["value"]["data"]["offset"] for one in offsets}


def _dumped(dump: Dump, data_dir: Path, topic: str, key: str, decoder: str) -> set[str]:
    """The types of the records that the dump understands in the partition that has a key."""
    folder = data_dir / f"{topic}-{partition_for(key, _PARTITIONS)}"
    out = dump(sorted(folder.glob("*.log")), decoder).out
    skipped = [line for line in out.splitlines() if "skipping" in line]
    expect(not skipped, "\n".join(skipped))
    return set(re.findall(r'key: \{"(?:type|version)":"?(\d+)', out))
