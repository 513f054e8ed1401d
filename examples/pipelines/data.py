"""Something for the example pipelines to work on: `python data.py logs` writes the messages that logs.toml reads.

Always the same messages, with times that begin at noon of 1 March 2026, so that every answer can be checked.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from headrace import Client, Serializer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPICS = {
    "logs": ["logs"],
    "metrics": ["metrics"],
    "sessions": ["clicks"],
    "fraud": ["payments"],
    "customers": ["shop.customers"],
    "enrichment": ["orders", "orders.paid"],
    "features": ["activity"],
    "deadletters": ["signups.dlq"],
    "readings": ["readings"],
}
_READING = [
    {"name": "sensor", "type": "string"},
    {"name": "celsius", "type": "double"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
_BATTERY = {"name": "battery", "type": ["null", "double"], "default": None}
SCHEMAS = {
    "readings": [
        json.dumps({"type": "record", "name": "Reading", "fields": fields})
        for fields in (_READING, [*_READING, _BATTERY])
    ]
}
"""The versions of the schema of a topic, in Avro, by its name."""


class Sample(NamedTuple):
    topic: str
    key: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    version: int = 0
    """Of the schema that the value, which is JSON, is encoded by; 0 for none."""


def at(seconds: float) -> str:
    """A time that long after noon."""
    return (NOON + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def row(topic: str, key: str, **columns: object) -> Sample:
    return Sample(topic, key, json.dumps(columns).encode())


def logs() -> Iterator[Sample]:
    """Three services for ten minutes; billing has a bad minute, and some lines are no log lines at all."""
    dice = random.Random(1)
    for second in range(600):
        time = at(second)[:19] + "Z"
        for service in ("billing", "search", "web"):
            level = dice.choices(["DEBUG", "INFO", "WARN", "ERROR"], [4, 80, 12, 4])[0]
            if service == "billing" and 240 <= second < 300:
                level = dice.choice(["ERROR", "WARN"])
            yield Sample("logs", service, f"{time} {level} {service} request {dice.randrange(10_000)}".encode())
        if second % 50 == 7:
            yield Sample("logs", "web", b"    at handler.process(handler.py:88)")
    # What comes an hour later closes every minute before it.
    yield Sample("logs", "web", f"{at(4200)[:19]}Z INFO web still here".encode())


def metrics() -> Iterator[Sample]:
    """Two hosts, two metrics, a sample every five seconds, up to ninety seconds late."""
    dice = random.Random(2)
    samples = [
        (second + dice.uniform(0, 90), second, name, host, round(dice.gauss(50, 12), 3))
        for second in range(0, 900, 5)
        for name in ("cpu", "memory")
        for host in ("a", "b")
    ]
    for _, second, name, host, value in sorted(samples):
        yield row("metrics", host, name=name, host=host, value=value, at=at(second))
    yield row("metrics", "a", name="cpu", host="a", value=0.0, at=at(7200))


def sessions() -> Iterator[Sample]:
    """Twenty users who come, click and go, and come again."""
    dice = random.Random(3)
    clicks = []
    for user in range(20):
        second = dice.uniform(0, 3600)
        for _ in range(dice.randrange(1, 5)):
            for _ in range(dice.randrange(1, 12)):
                clicks.append((second, f"user-{user}", dice.choice(["/", "/search", "/cart", "/help"])))
                second += dice.uniform(5, 1500)
            second += dice.uniform(2400, 9000)
    for second, user, page in sorted(clicks):
        yield row("clicks", user, user=user, page=page, at=at(second))
    yield row("clicks", "clock", user="clock", page="/", at=at(100_000))


def fraud() -> Iterator[Sample]:
    """Honest cards, and three that are not: one is hurried, one spends too much, one travels too fast."""
    dice = random.Random(4)
    payments = []
    for card in range(15):
        country = dice.choice(["DE", "FR", "IT"])
        for _ in range(20):
            payments.append((dice.uniform(0, 80_000), f"card-{card}", round(dice.uniform(5, 60), 2), country))
    payments += [(30_000 + 5.0 * n, "card-hurried", 9.99, "DE") for n in range(8)]
    payments += [(40_000 + 3600.0 * n, "card-rich", 20.0, "FR") for n in range(6)]
    payments += [(40_000 + 3600.0 * 6, "card-rich", 2500.0, "FR")]
    payments += [(50_000, "card-fast", 30.0, "IT"), (50_600, "card-fast", 30.0, "JP")]
    for number, (second, card, amount, country) in enumerate(sorted(payments)):
        sample = row("payments", card, id=f"payment-{number}", card=card, amount=amount, country=country, at=at(second))
        yield sample
        if number % 40 == 0:
            yield sample


def customers() -> Iterator[Sample]:
    """Customers come, move and go."""
    dice = random.Random(5)
    known: dict[int, dict[str, object]] = {}
    for lsn in range(1, 401):
        number = dice.randrange(60)
        before = known.get(number)
        after: dict[str, object] | None = {"id": number, "name": f"name {number}", "city": dice.choice("ABCDE")}
        if before is not None and dice.random() < 0.25:
            after = None
            del known[number]
        else:
            known[number] = after or {}
        op = "d" if after is None else "c" if before is None else "u"
        yield row("shop.customers", str(number), op=op, lsn=lsn, before=before, after=after)


def enrichment() -> Iterator[Sample]:
    """Orders of four products and one unknown; some are sent twice, some never paid, some paid too late."""
    dice = random.Random(6)
    for number in range(300):
        second = 10.0 * number
        order = row(
            "orders",
            f"order-{number}",
            id=f"order-{number}",
            product=f"p{dice.randrange(1, 6)}",
            quantity=dice.randrange(1, 9),
            at=at(second),
        )
        yield order
        if number % 25 == 0:
            yield order
        fate = dice.random()
        if fate < 0.85:
            paid_s = second + dice.uniform(1, 3600) if fate < 0.8 else second + dice.uniform(3700, 7200)
            amount = round(dice.uniform(5, 500), 2)
            yield row("orders.paid", f"order-{number}", order_id=f"order-{number}", amount=amount, at=at(paid_s))


def features() -> Iterator[Sample]:
    """Two hours of ten users who look, put into the cart and buy."""
    dice = random.Random(7)
    for second in sorted(dice.uniform(0, 7200) for _ in range(800)):
        user, action = f"user-{dice.randrange(10)}", dice.choices(["look", "cart", "buy"], [7, 2, 1])[0]
        amount = round(dice.uniform(3, 90), 2) if action == "buy" else None
        yield row("activity", user, user=user, action=action, amount=amount, at=at(second))
    yield row("activity", "clock", user="clock", action="look", amount=None, at=at(200_000))


def deadletters() -> Iterator[Sample]:
    """Letters as handlers and pipelines write them."""
    dice = random.Random(8)
    reasons = ["age is not INT", "the value is empty", "the value is not a JSON object, or is cut off"]
    for number in range(200):
        reason = dice.choices(reasons, [6, 1, 3])[0]
        headers = (("headrace-reason", reason.encode()), ("headrace-original-topic", b"signups"))
        yield Sample("signups.dlq", f"user-{number}", f"broken {dice.randrange(20):02d}".encode(), headers)


def readings() -> Iterator[Sample]:
    """Five sensors for a quarter of an hour; new ones, from the tenth minute on, report their battery, too."""
    dice = random.Random(9)
    for number in range(450):
        reading = {"sensor": f"s{number % 5}", "celsius": round(dice.gauss(22, 4), 1), "at": at(2 * number)}
        has_battery = number >= 300
        if has_battery:
            reading["battery"] = round(dice.random(), 2)
        value = json.dumps(reading).encode()
        yield Sample("readings", f"s{number % 5}", value, version=2 if has_battery else 1)


GENERATORS: dict[str, Callable[[], Iterator[Sample]]] = {
    "logs": logs,
    "metrics": metrics,
    "sessions": sessions,
    "fraud": fraud,
    "customers": customers,
    "enrichment": enrichment,
    "features": features,
    "deadletters": deadletters,
    "readings": readings,
}


def write(client: Client, example: str) -> int:
    """Write the messages of an example, and register the schemas of its topics first; the number of messages."""
    for topic in TOPICS[example]:
        for text in SCHEMAS.get(topic, ()):
            client.schemas.register(f"{topic}-value", text)
    encoders: dict[int, Serializer] = {}
    count = 0
    for sample in GENERATORS[example]():
        value: Any = sample.value
        if sample.version:
            value = json.loads(value)
            value["at"] = datetime.fromisoformat(value["at"])
            subject = f"{sample.topic}-value"
            encoders.setdefault(sample.version, client.schemas.serializer(subject, version=sample.version))
        encoder = encoders.get(sample.version)
        client.publish_soon(sample.topic, value, key=sample.key, headers=dict(sample.headers), schema=encoder)
        count += 1
    client.flush()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the messages that an example pipeline reads.")
    parser.add_argument("example", choices=sorted(GENERATORS))
    parser.add_argument("--bootstrap", default="localhost:9092")
    arguments = parser.parse_args()
    with Client(arguments.bootstrap) as client:
        count = write(client, arguments.example)
    print(f"{count} messages are in {', '.join(TOPICS[arguments.example])}")


if __name__ == "__main__":
    main()
