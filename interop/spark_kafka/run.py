"""Spark's own Kafka source and sink against a real `headrace serve` process, beside the format headrace.

    python interop/spark_kafka/run.py

Both connectors do the same in one Spark session, and their answers must be the same. One line for each check, a
summary, and an exit code of 1 if one failed. Without Java, Maven or the connector it says so and ends well.
"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from connector import Unavailable, prepare
from report import Report

from headrace.testing.process import BrokerProcess


def main() -> int:
    try:
        connector = prepare()
    except Unavailable as reason:
        print(f"Spark's Kafka connector is not checked: {reason}.")
        return 0
    # They import pyspark, whose version is chosen above.
    from both import Both
    from reading import check_batches, check_streams, check_transactions
    from writing import check_batch_writes, check_stream_writes

    report = Report()
    print(f"The Kafka connector of Spark {connector.version} against headrace serve", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-spark-") as scratch,
        BrokerProcess(Path(scratch) / "data") as broker,
        closing(Both(connector, broker.bootstrap, Path(scratch))) as both,
    ):
        check_batches(report, both)
        check_transactions(report, both)
        check_streams(report, both)
        check_batch_writes(report, both)
        check_stream_writes(report, both)
    print(report.summary(), flush=True)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
