"""Workloads about records as columns: decoding, encoding and Avro values, each beside what else does it in Python."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.lab import Lab, Variant
from harness.workload import Metric, Result, Workload, size_text

COLUMNS = Variant("columns", "headrace")
COLUMNS_WIRE = Variant("fetch + columns", "headrace")
AIOKAFKA = Variant("aiokafka", "headrace")
CONFLUENT = Variant("confluent", "headrace", {"flush.policy": "os"})
BLOCKS = Variant("blocks", "headrace")
FASTAVRO = Variant("fastavro", "headrace")
FASTAVRO_ARROW = Variant("fastavro to Arrow", "headrace")
GOOGLE = Variant("google.protobuf", "headrace")
GOOGLE_ARROW = Variant("google.protobuf to Arrow", "headrace")
GOOGLE_DICT = Variant("MessageToDict", "headrace")

_HOW = {
    COLUMNS.label: "columns",
    COLUMNS_WIRE.label: "wire",
    AIOKAFKA.label: "aiokafka",
    CONFLUENT.label: "confluent",
    BLOCKS.label: "blocks",
    FASTAVRO.label: "fastavro",
    FASTAVRO_ARROW.label: "fastavro-arrow",
    GOOGLE.label: "google",
    GOOGLE_ARROW.label: "google-arrow",
    GOOGLE_DICT.label: "google-dict",
}


def _rates(result: Result) -> Result:
    """Per second, and per second of CPU time of the process with all its threads, which a busy machine blurs less."""
    messages = result["messages"]
    return result | {"messages_s": messages / result["seconds"], "messages_cpu_s": messages / result["cpu_s"]}


class Codec(Workload):
    """One process that does nothing else. Those that need a broker find a topic with the same records there."""

    metric = Metric("messages_s", "messages/s")
    shown = (Metric("messages_cpu_s", "messages/s of CPU"),)
    _times = 4

    def __init__(self, what: str, message_bytes: int) -> None:
        self._what = what
        self._message_bytes = message_bytes
        self._messages = 0
        self.name = f"{what}-{'1k' if message_bytes == 1024 else f'{message_bytes}b'}"
        if what == "decode":
            self.title = f"Record batches to columns, {size_text(message_bytes)} values"
            self.variants = (COLUMNS, COLUMNS_WIRE, AIOKAFKA, CONFLUENT)
        else:
            self.title = f"Columns to record batches, {size_text(message_bytes)} values (confluent: to a broker)"
            self.variants = (COLUMNS, AIOKAFKA, CONFLUENT)

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        if variant not in (COLUMNS_WIRE, CONFLUENT):
            yield ""
            return
        with lab.topic(variant, 1) as topic:
            if self._what == "decode":
                port = lab.system(variant.system).port
                options = {"port": port, "topic": topic, "message_bytes": self._message_bytes, "times": self._times}
                self._messages = int(lab.run("codec.py", "fill", **options)["messages"])
            yield topic

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        options = {"how": _HOW[variant.label], "message_bytes": self._message_bytes, "warmup": lab.sizes.warmup_s}
        if topic:
            options |= {"port": lab.system(variant.system).port, "topic": topic, "messages": self._messages}
        return _rates(lab.run("codec.py", self._what, seconds=lab.sizes.seconds, **options))


class Avro(Workload):
    """Framed Avro of seven fields: whole blocks against one by one."""

    name = "avro"
    title = "Avro values to columns, 7 fields, 10,000 values at a time"
    metric = Metric("messages_s", "messages/s")
    shown = (Metric("messages_cpu_s", "messages/s of CPU"),)
    variants = (BLOCKS, FASTAVRO, FASTAVRO_ARROW)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        options = {"how": _HOW[variant.label], "seconds": lab.sizes.seconds, "warmup": lab.sizes.warmup_s}
        return _rates(lab.run("codec.py", self.name, **options))


class Protobuf(Avro):
    """Framed Protobuf of seven fields: whole blocks against one by one."""

    name = "protobuf"
    title = "Protobuf values to columns, 7 fields, 10,000 values at a time"
    variants = (BLOCKS, GOOGLE, GOOGLE_ARROW, GOOGLE_DICT)
