"""Workloads about Spark and topics. What is compared is measured by one session, in turns (`spark_source.py`)."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.lab import HEADRACE_ACK, HEADRACE_OS, Lab, Variant
from harness.workload import Metric, Result, Workload, size_text


def fill(lab: Lab, variant: Variant, topic: str, message_bytes: int, max_bytes: int) -> None:
    port = lab.system(variant.system).port
    lab.run("spark_source.py", "fill", port=port, topic=topic, message_bytes=message_bytes, max_bytes=max_bytes)


class SparkRead(Workload):
    """All rows of a topic of two partitions to nowhere, by two tasks."""

    metric = Metric("source_rows_s", "rows/s")
    shown = (
        Metric("parquet_rows_s", "rows/s, the same from Parquet"),
        Metric("tuples_rows_s", "rows/s as tuples"),
        Metric("over_parquet", "x Parquet"),
        Metric("over_tuples", "x tuples"),
        Metric("cpu_over_parquet", "x Parquet, rows per CPU time"),
        Metric("cpu_over_tuples", "x tuples, rows per CPU time"),
    )
    variants = (HEADRACE_OS,)
    rounds = 1

    def __init__(self, message_bytes: int) -> None:
        self._message_bytes = message_bytes
        self.name = f"spark-read-{'1k' if message_bytes == 1024 else f'{message_bytes}b'}"
        self.title = f"Spark reads a topic, {size_text(message_bytes)} messages, 2 partitions"

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        with lab.topic(variant, 2) as topic:
            fill(lab, variant, topic, self._message_bytes, lab.sizes.preload_bytes)
            yield topic

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        return lab.run("spark_source.py", "read", port=lab.system(variant.system).port, topic=topic)


class SparkTable(Workload):
    """A topic and its archive read as one table, beside the same records all in Parquet (`spark_table.py`)."""

    metric = Metric("table_rows_s", "rows/s")
    shown = (
        Metric("parquet_rows_s", "rows/s, all from Parquet"),
        Metric("over_parquet", "x Parquet"),
        Metric("cpu_over_parquet", "x Parquet, rows per CPU time"),
        Metric("archived_rows_s", "rows/s, the archiver"),
        Metric("archiver_large_mb", "MB, the archiver", False),
        Metric("archiver_growth", "x its memory, ten times the backlog", False),
    )
    variants = (HEADRACE_OS,)
    rounds = 1

    def __init__(self, message_bytes: int) -> None:
        self._message_bytes = message_bytes
        self.name = f"spark-table-{'1k' if message_bytes == 1024 else f'{message_bytes}b'}"
        self.title = f"Spark reads a topic and its archive, {size_text(message_bytes)} messages, 5% not archived yet"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        port = lab.system(variant.system).port
        with lab.topic(variant, 2) as topic:
            return lab.run(
                "spark_table.py",
                "read",
                port=port,
                topic=topic,
                message_bytes=self._message_bytes,
                max_bytes=lab.sizes.preload_bytes,
            )


class SparkSink(Workload):
    """Topic to topic through Spark, exactly once beside at least once (`spark_sink.py`)."""

    metric = Metric("exactly_once_rows_s", "rows/s")
    shown = (
        Metric("at_least_once_rows_s", "rows/s, at least once"),
        Metric("over_at_least_once", "x at least once"),
        Metric("cpu_over_at_least_once", "x at least once, rows per CPU time"),
    )
    variants = (HEADRACE_ACK,)
    rounds = 1

    def __init__(self, what: str) -> None:
        self._what = what
        self.name = f"spark-exactly-once-{what}"
        self.title = f"Spark, topic to topic ({what}), exactly once, 100 B messages, 2 partitions"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        port, total = lab.system(variant.system).port, lab.sizes.preload_bytes
        with lab.topic(variant, 2) as topic:
            return lab.run("spark_sink.py", self._what, port=port, topic=topic, max_bytes=total)


class SparkFloor(Workload):
    """A micro-batch of ten rows beside one of Spark's own rate source."""

    name = "spark-floor"
    title = "Spark, a micro-batch with almost nothing in it"
    metric = Metric("source_ms", "ms", False)
    shown = (Metric("rate_ms", "ms, Spark's rate source", False), Metric("over_rate", "x the rate source", False))
    variants = (HEADRACE_OS,)
    rounds = 1

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        with lab.topic(variant, 1) as topic:
            return lab.run("spark_source.py", "floor", port=lab.system(variant.system).port, topic=topic)


class SparkMemory(Workload):
    """The largest Python worker while a backlog is read, and while one of a tenth of it is."""

    name = "spark-memory"
    metric = Metric("growth", "x, ten times the backlog", False)
    shown = (Metric("small_mb", "MB, the small backlog", False), Metric("large_mb", "MB, the large one", False))
    variants = (HEADRACE_OS,)
    rounds = 1

    def __init__(self, gigabytes: float) -> None:
        self.title = f"Memory of a Python worker of Spark, backlogs of {gigabytes / 10:g} and {gigabytes:g} GB"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        sizes_mb = {}
        for name, total in (("small", lab.sizes.memory_bytes // 10), ("large", lab.sizes.memory_bytes)):
            with lab.topic(variant, 2) as topic:
                fill(lab, variant, topic, 1024, total)
                port = lab.system(variant.system).port
                sizes_mb[name] = lab.run("spark_source.py", "memory", port=port, topic=topic)["worker_rss_mb"]
        return {
            "growth": sizes_mb["large"] / sizes_mb["small"],
            "small_mb": sizes_mb["small"],
            "large_mb": sizes_mb["large"],
        }


class SparkKafka(Workload):
    """Topic → Spark → topic, by our connector and by Spark's own for Kafka (`spark_kafka.py`)."""

    metric = Metric("source_rows_s", "rows/s")
    shown = (
        Metric("jvm_rows_s", "rows/s, Spark's Kafka connector"),
        Metric("over_jvm", "x Spark's Kafka connector"),
        Metric("cpu_over_jvm", "x it, rows per CPU time of Spark"),
    )
    variants = (HEADRACE_OS,)
    rounds = 1

    def __init__(self, job: str, title: str) -> None:
        self._job = job
        self.name = f"spark-kafka-{job}"
        self.title = f"Topic to Spark to topic, {title}, 100 B messages, 2 partitions"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        port, total = lab.system(variant.system).port, lab.sizes.preload_bytes // 2
        with lab.topic(variant, 2) as topic:
            return lab.run("spark_kafka.py", self._job, port=port, topic=topic, max_bytes=total)
