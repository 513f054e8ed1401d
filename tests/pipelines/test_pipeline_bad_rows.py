"""One row in a hundred does not fit, in every way there is: the rest goes on, and each of them is found again."""

import json
import random
from collections.abc import Iterator

import pytest

from .running import Pipelines, Write, as_json
from .test_pipeline_formats import framed
from .test_pipeline_run import BAD as BAD_JSON

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 3
SCHEMA = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "double"}],
}
BAD_AVRO = {
    framed(9, SCHEMA, {"id": "z", "amount": 1.0}): "there is no schema of id 9",
    framed(1, SCHEMA, {"id": "z", "amount": 1.0})[:-3]: "amount is cut off",
    b"\x07not avro": "the value does not begin with a schema id (a zero byte and four more)",
    b"": "the value is empty",
    None: "there is no value (a tombstone)",
}
Values = list[bytes | None]


def mixed(good: Values, bad: Values, chance: random.Random) -> Iterator[tuple[int, Values]]:
    """All of them, the bad ones anywhere among the good ones, in batches for the partitions in turn."""
    values = [*good]
    for value in bad:
        values.insert(chance.randrange(len(values)), value)
    for number, start in enumerate(range(0, len(values), 500)):
        yield number % PARTITIONS, values[start : start + 500]


def test_each_bad_row_of_a_large_load_is_a_dead_letter_with_its_reason(
    spark, tmp_path, cluster, new_topic, write: Write
):
    pipelines = Pipelines(spark, tmp_path, cluster)
    orders, payments, out = new_topic(PARTITIONS), new_topic(PARTITIONS), new_topic(PARTITIONS)
    (tmp_path / "1.avsc").write_text(json.dumps(SCHEMA))
    chance = random.Random(3)
    good: dict[str, Values] = {
        orders: [as_json(id=f"o{n}", amount=n) for n in range(13_860)],
        payments: [framed(1, SCHEMA, {"id": f"p{n}", "amount": n}) for n in range(5_940)],
    }
    reasons = {orders: BAD_JSON, payments: BAD_AVRO}
    expected: dict[tuple[str, int, int], tuple[bytes | None, str]] = {}
    for topic, bad in ((orders, [*BAD_JSON] * 20), (payments, [*BAD_AVRO] * 12)):
        for partition, values in mixed(good[topic], bad, chance):
            first = write(topic, *[(b"k", value) for value in values], partition=partition)
            for offset, value in enumerate(values, first):
                if value in reasons[topic]:
                    expected[topic, partition, offset] = (value, reasons[topic][value])
    assert len(expected) == 200

    book = pipelines.run(
        "load",
        f"""
        [sources.orders]
        topic = "{orders}"
        schema = "id STRING, amount DOUBLE"
        [sources.payments]
        topic = "{payments}"
        format = "avro"
        schemas = {{ 1 = "1.avsc" }}
        [transform]
        sql = "SELECT id, amount FROM orders UNION ALL SELECT id, amount FROM payments"
        [sink]
        topic = "{out}"
        """,
    )

    assert (book.queries["sink"].rows_in, book.queries["sink"].rows_out) == (20_000, 19_800)
    assert book.bad == book.dead_letters == 200
    ids = sorted(each.json()["id"] for each in pipelines.messages(out))
    assert ids == sorted([f"o{n}" for n in range(13_860)] + [f"p{n}" for n in range(5_940)])
    letters = [*pipelines.messages(f"{orders}.dlq"), *pipelines.messages(f"{payments}.dlq")]
    assert {each.origin: (each.payload, each.header("headrace-reason")) for each in letters} == expected
    assert len(letters) == 200
