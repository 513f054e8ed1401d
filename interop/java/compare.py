"""Odd requests to Headrace and to Apache Kafka, side by side: the answers are the same, or documented as different."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apache import HERE, ROOT, Java
from odd import cases, prepare
from odd_case import BROKER_ID, Case
from report import Report, expect
from tests.interop import raw_client
from tests.interop.subject import KafkaProcess

from headrace.testing.process import BrokerProcess

_DOCUMENT = ROOT / "docs" / "compatibility.md"
_SECTION = "## Odd requests, side by side\n"
_ROW = re.compile(r"^\| (\w+(?: v\d+)?: [^|]+?) \|", re.MULTILINE)
_NO_ANSWER_AFTER_S = 4.0
_NAMES = ("name", "topic", "resource_name", "partition_index", "partition", "index")
_VALUES = (
    "base_offset",
    "end_offset",
    "high_watermark",
    "leader_epoch",
    "log_start_offset",
    "low_watermark",
    "num_partitions",
    "offset",
    "replication_factor",
    "timestamp",
)

Answers = dict[str, list[str]]
"""What a broker said, by the name of the case."""


def check_odd_requests(report: Report, java: Java, scratch: Path) -> None:
    with BrokerProcess(scratch / "headrace", settings={"broker.id": BROKER_ID}) as broker:
        ours = _ask(broker.bootstrap)
    kafka = KafkaProcess(f"{HERE}:{java.libs}", scratch / "kafka", {})
    try:
        kafka.start()
        theirs = _ask(kafka.bootstrap)
    finally:
        kafka.close()
    _, _, section = _DOCUMENT.read_text().partition(_SECTION)
    differences = set(_ROW.findall(section.partition("\n## ")[0]))
    by_api: dict[str, list[str]] = defaultdict(list)
    for case in ours:
        by_api[case.partition(":")[0]].append(case)
    for api, names in by_api.items():
        but = f", but for {count} in docs/compatibility.md" if (count := len(differences & set(names))) else ""
        with report.check(f"{api}: {len(names)} odd requests are answered as Apache Kafka does{but}"):
            wrong = [name for name in names if (ours[name] == theirs[name]) == (name in differences)]
            answers = [f"{name}\n  Headrace {ours[name]}\n  Kafka    {theirs[name]}" for name in wrong]
            expect(not wrong, "\n".join(answers))
    with report.check("docs/compatibility.md speaks of odd requests that are made"):
        expect(bool(differences) and differences <= set(ours), sorted(differences - set(ours)))


def _ask(bootstrap: str) -> Answers:
    return {case.name: _answer(bootstrap, case) for case in cases(prepare(bootstrap))}


def _answer(bootstrap: str, case: Case) -> list[str]:
    """What a broker says to one request, in short. Each gets a connection of its own, which a broker may close."""
    with raw_client.Connection(bootstrap, _NO_ANSWER_AFTER_S) as connection:
        try:
            return sorted(_outcomes(connection.call(case.key, case.version, case.body)))
        except raw_client.Closed:
            return ["closes the connection"]
        except TimeoutError:
            return ["no answer"]


def _outcomes(entity: Any) -> Iterator[str]:
    """Each error code in an answer, with what it belongs to, and where there is no error with the values told."""
    if isinstance(entity, tuple):
        for item in entity:
            yield from _outcomes(item)
    elif dataclasses.is_dataclass(entity):
        fields = {field.name: getattr(entity, field.name) for field in dataclasses.fields(entity)}
        code = fields.get("error_code")
        if code is not None:
            about = [str(fields[name]) for name in _NAMES if name in fields]
            values = [f"{name}={fields[name]}" for name in _VALUES if name in fields and code == raw_client.Error.none]
            yield " ".join([*about, code.name, *values])
        for value in fields.values():
            yield from _outcomes(value)
