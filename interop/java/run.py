"""Apache Kafka's Java clients and command-line tools against a real `headrace serve` process, and its broker beside it.

    python interop/java/run.py

One line for each check, a summary, and an exit code of 1 if one failed. Without Java or Maven it says so and ends well.
"""

import sys
import tempfile
from pathlib import Path

# For the report, and for the wire-level client of the tests.
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
sys.path.insert(2, str(Path(__file__).resolve().parents[2]))

from apache import Unavailable, java
from client_metrics import check_client_metrics
from clients import check_clients, check_restarts
from compare import check_odd_requests
from internal_topics import check_internal_files, check_internal_topics, check_rare_records
from link import check_link
from mirror import check_mirror
from report import Report
from secure import check_security
from storage import check_storage
from streams_job import check_streams
from tools import check_tools

from headrace.testing.process import BrokerProcess

# Small segments and a dense index, so that there is something to roll and to look up.
_SETTINGS = {"log.segment.bytes": 4 * 1024 * 1024, "log.index.interval.bytes": 4096}
_DUMPED = {"load-idempotent": "none"} | {f"load-{codec}": codec for codec in ("gzip", "snappy", "lz4", "zstd")}


def main() -> int:
    try:
        kafka = java()
    except Unavailable as reason:
        print(f"Kafka's Java clients are not checked: {reason}.")
        return 0
    report = Report()
    print(f"Apache Kafka {kafka.version} clients and tools against headrace serve", flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-java-") as scratch:
        with BrokerProcess(Path(scratch) / "data", settings=_SETTINGS) as broker:
            check_clients(report, kafka, broker.bootstrap)
            check_restarts(report, kafka, broker)
            check_tools(report, kafka, broker, Path(scratch))
            check_client_metrics(report, kafka, broker)
            check_internal_topics(report, kafka, broker)
            broker.terminate()
        check_security(report, kafka, Path(scratch))
        check_storage(report, kafka, broker.data_dir, _DUMPED)
        check_internal_files(report, kafka, broker.data_dir)
        check_rare_records(report, kafka, Path(scratch))
        check_odd_requests(report, kafka, Path(scratch))
        check_mirror(report, kafka, Path(scratch))
        check_link(report, kafka, Path(scratch))
        check_streams(report, Path(scratch))
    print(report.summary(), flush=True)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
