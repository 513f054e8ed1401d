"""Hostile schemas are answered, by a thread that counts its steps or a process that is ended."""

import asyncio
import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.schemas.check_process import CheckProcess
from headrace.schemas.checker import MAX_WAITING_OF_ONE, SMALL_BYTES, CheckedSchema, SchemaChecker
from headrace.schemas.checks import CheckResult, CompareCheck, ParseCheck, SchemaCheck, SchemaText
from headrace.schemas.errors import InvalidSchema, RegistryBusy, SchemaTooComplex
from headrace.schemas.machine import SchemaMachine, SubjectState
from headrace.schemas.stored import SchemaReference, StoredSchema, schema_record
from tests.unit.schemas.hostile import HOSTILE, HostilePair


@pytest.fixture(scope="module")
def process() -> Iterator[CheckProcess]:
    made = CheckProcess()
    yield made
    made.close()


def _compared(process: CheckProcess, pair: HostilePair) -> str:
    """The refusal, or an empty text if the check was carried out to its end."""
    try:
        process.run(ParseCheck(SchemaText(pair.kind, pair.new, is_new=True)))
        if pair.old:
            earlier = SchemaText(pair.kind, pair.old, version=1)
            process.run(CompareCheck("FULL", SchemaText(pair.kind, pair.new), (earlier,)))
    except InvalidSchema as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_of_the_size_that_threads_check_end_by_their_steps(name: str) -> None:
    """Also without the time limit of the process."""
    pair = HOSTILE[name](SMALL_BYTES // 2)
    workers = ThreadPoolExecutor(1)
    checker, machine = SchemaChecker(workers), SchemaMachine()

    async def check() -> None:
        new = StoredSchema("s", 2, 2, pair.new, schema_type=pair.kind)
        await checker.parse(machine, new, is_new=True)
        if pair.old:
            old = StoredSchema("s", 1, 1, pair.old, schema_type=pair.kind)
            await checker.compare(machine, "FULL", new, [old], is_lenient=False)

    try:
        with contextlib.suppress(InvalidSchema):
            asyncio.run(check())
    finally:
        checker.close()
        workers.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_of_the_largest_size_are_answered(name: str, process: CheckProcess) -> None:
    _compared(process, HOSTILE[name](1_000_000))
    assert _compared(process, HostilePair("AVRO", '"int"', '"int"')) == "", "the process is there for others"


@pytest.mark.parametrize("name", ["many properties", "many properties of 2020-12"])
def test_large_documents_of_every_draft_are_checked_in_linear_time(name: str) -> None:
    """The limit is twenty times what a quiet machine needs: a busy one needs more, and quadratic time much more."""
    patient = CheckProcess(cpu_limit_s=10)
    try:
        assert _compared(patient, HOSTILE[name](400_000)) == ""
    finally:
        patient.close()


def test_a_check_that_takes_too_long_is_ended(process: CheckProcess) -> None:
    assert "takes too long" in _compared(process, HOSTILE["matching"](1_000_000))
    assert _compared(process, HostilePair("AVRO", '"int"', '"int"')) == ""


@pytest.mark.timeout(30)
@pytest.mark.parametrize("size", [10, 1_000_000], ids=["answer", "read more than a pipe takes"])
def test_a_process_that_does_not_answer_is_killed(size: int) -> None:
    stuck = CheckProcess(answer_limit_s=0.2, command=(sys.executable, "-c", "import time; time.sleep(600)"))
    with pytest.raises(SchemaTooComplex):
        stuck.run(ParseCheck(SchemaText("AVRO", '"int"' + " " * size)))
    assert stuck._process is None
    stuck.close()


def test_a_process_that_cannot_be_started_says_nothing_about_the_schema() -> None:
    missing = CheckProcess(command=("/nonexistent/python",))
    closed = CheckProcess()
    closed.close()
    for process in (missing, closed):
        with pytest.raises(RegistryBusy, match="try again"):
            process.run(ParseCheck(SchemaText("AVRO", '"int"')))


def test_one_who_has_many_large_schemas_checked_does_not_make_others_wait() -> None:
    class Slow(CheckProcess):
        done: ClassVar[list[str]] = []
        goes_on = threading.Event()

        def run(self, check: SchemaCheck) -> CheckResult:
            assert isinstance(check, ParseCheck)
            assert self.goes_on.wait(30)
            self.done.append(check.schema.text[:1])
            return CheckResult(("", ""))

    async def test(workers: ThreadPoolExecutor) -> None:
        checker, machine = SchemaChecker(workers, Slow()), SchemaMachine()

        def parse(owner: str) -> "asyncio.Task[CheckedSchema]":
            schema = StoredSchema("s", 1, 1, owner + " " * SMALL_BYTES)
            return asyncio.ensure_future(checker.of(owner).parse(machine, schema, is_new=True))

        first = [parse("a") for _ in range(MAX_WAITING_OF_ONE + 1)]
        await asyncio.sleep(0)
        tasks = [*first, parse("b"), parse("c")]
        await asyncio.sleep(0)
        with pytest.raises(RegistryBusy):
            await parse("a")
        tasks[3].cancel()
        Slow.goes_on.set()
        await asyncio.wait(tasks)
        assert Slow.done[:4] == ["a", "a", "b", "c"]
        assert len(Slow.done) == len(tasks) - 1

    with ThreadPoolExecutor(1) as workers:
        asyncio.run(test(workers))


def test_a_process_that_dies_is_started_again(process: CheckProcess) -> None:
    assert _compared(process, HostilePair("AVRO", '"int"', '"int"')) == ""
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    assert _compared(process, HostilePair("AVRO", '"int"', '"int"')) == ""


def test_a_large_schema_is_checked_by_the_process_and_not_cached() -> None:
    workers = ThreadPoolExecutor(1)
    checker, machine = SchemaChecker(workers), SchemaMachine()
    pair = HOSTILE["huge enum of Avro"](100_000)
    old = StoredSchema("s", 1, 1, pair.old)
    new = StoredSchema("s", 2, 2, pair.new)
    parsed = asyncio.run(checker.parse(machine, old, is_new=True))
    assert parsed.canonical.startswith('{"type":"enum","name":"E"')
    verdict = asyncio.run(
        SchemaChecker(workers, checker._process).compare(machine, "BACKWARD", new, [old], is_lenient=False)
    )
    assert not verdict.is_compatible
    assert "MISSING_ENUM_SYMBOLS" in verdict.messages[0]
    checker.close()
    workers.shutdown()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("JSON", '{"type":"number","maximum":NaN}'),
        ("JSON", '{"type":"number","maximum":Infinity}'),
        ("JSON", '{"const":"\\ud800"}'),
        ("AVRO", '{"type":"enum","name":"E","symbols":["A"],"x":NaN}'),
        ("AVRO", '{"type":"record","name":"R","fields":[],"doc":"\\udfff"}'),
        ("PROTOBUF", 'syntax = "proto3"; option java_package = "x"; message M { string a = 99999999999999; }'),
        ("PROTOBUF", "AAAA"),
        ("PROTOBUF", "CgD/////"),
    ],
)
def test_texts_that_are_almost_valid_are_refused(kind: str, text: str, process: CheckProcess) -> None:
    with pytest.raises(InvalidSchema):
        process.run(ParseCheck(SchemaText(kind, text, is_new=True)))


def test_limits_beyond_the_range_of_floats_are_compared(process: CheckProcess) -> None:
    assert _compared(process, HOSTILE["multiples"](0)) == ""


def test_references_in_a_circle_are_refused() -> None:
    """They cannot be registered, but a topic that was copied here could have them."""
    machine = SchemaMachine()
    for subject, other in (("a", "b"), ("b", "a")):
        reference = {"name": f"{other}.avsc", "subject": other, "version": 1}
        stored = {"subject": subject, "version": 1, "id": 1, "schema": '"int"', "references": [reference]}
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        machine.replay(InternalRecord(json.dumps(key).encode(), json.dumps(stored).encode()), -1)
    workers = ThreadPoolExecutor(1)
    with pytest.raises(InvalidSchema, match="in a circle"):
        asyncio.run(SchemaChecker(workers).parse(machine, machine.version("a", 1), is_new=False))
    workers.shutdown()


def test_nothing_remote_is_asked_for(process: CheckProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        texts = [
            ("JSON", json.dumps({"$ref": f"{address}/a.json"})),
            ("JSON", json.dumps({"$id": f"{address}/b.json", "$ref": "c.json"})),
            ("JSON", json.dumps({"allOf": [{"$dynamicRef": f"{address}/d.json#x"}]})),
            ("JSON", json.dumps({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": address})),
            ("PROTOBUF", f'syntax = "proto3"; import "{address}/x.proto"; message M {{ }}'),
            (
                "AVRO",
                json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": f"{address}/x.avsc"}]}),
            ),
        ]
        for kind, text in texts:
            with pytest.raises(InvalidSchema):
                process.run(ParseCheck(SchemaText(kind, text, is_new=True)))
        # An unknown dialect is read as draft 7.
        process.run(ParseCheck(SchemaText("JSON", json.dumps({"$schema": f"{address}/meta.json"}), is_new=True)))
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


class _CountedMachine(SchemaMachine):
    asked = 0

    def state(self, subject: str) -> SubjectState:
        self.asked += 1
        return super().state(subject)


def test_a_comparison_with_versions_of_many_references_lets_others_run() -> None:
    machine, versions = _CountedMachine(), 30
    for version in range(1, 101):
        machine.replay(schema_record(StoredSchema("r", version, version, '"int"')), -1)
    references = [SchemaReference(f"n{version}", "r", version) for version in range(1, 101)]
    earlier = [StoredSchema("s", each, each, '"int"', references=references) for each in range(1, versions + 1)]

    async def check(checker: SchemaChecker) -> None:
        comparison = asyncio.create_task(
            checker.compare(machine, "FULL_TRANSITIVE", earlier[0], earlier, is_lenient=False)
        )
        for turn in range(1, versions):
            await asyncio.sleep(0)
            assert machine.asked <= 100 * turn, "each version has a turn of the event loop of its own"
        assert (await comparison).is_compatible

    with ThreadPoolExecutor(1) as workers, contextlib.closing(SchemaChecker(workers)) as checker:
        asyncio.run(check(checker))
