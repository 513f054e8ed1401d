"""The SDK reads what Confluent's serializers write, and they read what it writes, against a real `headrace serve`, also
in the mirror topics of a link that copies the schemas.

    python interop/registry/run.py

pip fetches the serializers into an environment of their own in `.cache/` the first time. One line for each check, and
an exit code of 1 if one failed. Where they cannot be fetched, it says so and ends well.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

sys.path.append(str(Path(__file__).resolve().parents[1]))

from client_suite import Unavailable
from environments import environment
from report import Report, expect

from headrace import Client
from headrace.testing import Broker

_HERE = Path(__file__).resolve().parent
_FORMATS = ("avro", "json-schema", "protobuf")
_WIRES = ("v0", "v1")


@dataclass
class Line:
    price: int


@dataclass
class Order:
    id: int
    item: str
    lines: list[Line]


ORDER = Order(9007199254740993, "tea", [Line(3)])


def main() -> int:
    try:
        python = environment(_HERE / "requirements.txt", "registry")
    except Unavailable as reason:
        print(f"Confluent's serializers are not checked: {reason}.")
        return 0
    report = Report()
    with Broker(settings={"num.partitions": 1}) as broker, Client(broker.bootstrap) as client:

        def confluent(command: str, at: Broker = broker, context: str = "", prefix: str = "") -> str:
            url = f"{at.http_url}/registry{context}"
            arguments = [str(_HERE / "serializers.py"), command, at.bootstrap, url, prefix]
            done = subprocess.run([str(python), *arguments], capture_output=True, text=True, timeout=180, check=False)
            expect(done.returncode == 0, done.stderr)
            return done.stdout

        def expect_ours(text: str, prefix: str = "") -> None:
            found = {each["topic"]: each["value"] for each in map(json.loads, text.splitlines())}
            expected = {"id": ORDER.id, "item": "tea", "lines": [{"price": 3}]}
            for form in _FORMATS:
                for wire in _WIRES:
                    value = found.get(f"{prefix}headrace.{form}.{wire}")
                    expect(value == expected, f"{form} {wire}: {value}")

        with report.check("Confluent's serializers write"):
            confluent("write")
        _read_theirs(client, report)
        _write_ours(client)
        with report.check("Confluent's deserializers read what the SDK wrote"):
            expect_ours(confluent("read"))
        for prefix, context in (("", ""), ("eu.", "/contexts/.eu")):
            with (
                report.check(f"Confluent's deserializers read mirrored topics {f'called {prefix}…' if prefix else ''}"),
                Broker(settings={"link.refresh.interval.ms": 500}) as mirror,
            ):
                _link(mirror, broker, prefix)
                expect_ours(confluent("read", mirror, context, prefix), prefix)
    print(report.summary())
    return int(bool(report.failed))


def _link(mirror: Broker, source: Broker, prefix: str) -> None:
    """Mirror the topics and schemas of a broker, and wait for the schemas."""
    link = {"name": "eu", "bootstrap": [source.bootstrap], "prefix": prefix, "sync": ["schemas"]}
    body, headers = json.dumps(link).encode(), {"Content-Type": "application/json"}
    with urlopen(Request(f"{mirror.http_url}/api/v1/links", body, headers), timeout=60):
        pass
    count, until_s = len(_subjects(source)), time.monotonic() + 60
    while len(_subjects(mirror)) < count:
        expect(time.monotonic() < until_s, "the schemas are not copied within a minute")
        time.sleep(0.2)


def _subjects(broker: Broker) -> list[str]:
    with urlopen(f"{broker.http_url}/registry/subjects", timeout=60) as answer:
        return list(json.load(answer))


def _read_theirs(client: Client, report: Report) -> None:
    for form in _FORMATS:
        for wire in _WIRES:
            with report.check(f"the SDK reads {form} in the wire format {wire}"):
                (message,) = client.replay(f"confluent.{form}.{wire}", type=Order)
                expect(message.value == ORDER, message.value)
                expect((message.header("__value_schema_id") is not None) is (wire == "v1"), message.headers)


def _write_ours(client: Client) -> None:
    """By the schemas that Confluent's serializers registered."""
    for form in _FORMATS:
        for wire in _WIRES:
            message = "shop.Order" if form == "protobuf" else None
            subject = f"confluent.{form}.{wire}-value"
            chosen = client.schemas.serializer(subject, message=message, in_header=wire == "v1")
            client.publish(f"headrace.{form}.{wire}", ORDER, schema=chosen)


if __name__ == "__main__":
    sys.exit(main())
