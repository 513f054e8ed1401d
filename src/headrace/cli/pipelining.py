"""The work of `headrace pipeline init`, `validate`, `explain` and `run`."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.errors import BadArgument
from headrace.cli.output import print_json, say
from headrace.pipelines.session import check_ready, start_session
from headrace.pipelines.specfile import SpecFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXAMPLE = '''\
# A pipeline: records of a topic flow through SQL into another topic.
#   headrace pipeline validate {file}    finds mistakes before anything runs
#   headrace pipeline run {file}         runs it until Ctrl-C; --once: until all that is there is done
#   headrace pipeline start {file}       runs it in the background

[source]
topic = "{topic}"
format = "json"                  # or csv, avro, text, raw
schema = "order_id STRING, user STRING, amount DOUBLE, at TIMESTAMP"
starting = "earliest"            # where the first run begins: earliest, latest or a time

[transform]
watermark = "at 10 minutes"      # how late a row may come
sql = """
SELECT window.start AS minute, user, sum(amount) AS revenue
FROM source
GROUP BY window(at, '1 minute'), user
"""

[sink]
topic = "{topic}-revenue"
key = "user"
delivery = "exactly-once"        # or at-least-once

[errors]
on_error = "dead-letter"         # a record that does not fit goes to {topic}.dlq; or skip, or fail

[trigger]
every = "5 seconds"              # or: available-now = true

[spark]
master = "local[*]"              # or spark://host:7077, yarn, k8s://…
'''


def write_example(file: Path, topic: str, *, force: bool) -> None:
    if file.exists() and not force:
        raise BadArgument(f"{file} is there already: choose another name, or add --force to replace it")
    file.write_text(_EXAMPLE.format(file=file, topic=topic))
    print(f"Wrote {file}: change it to your needs, then `headrace pipeline validate {file}`")


def load(file: Path, bootstrap: str | None) -> SpecFile:
    """The file, read; a broker that is named on the command line takes the place of its own."""
    return SpecFile(file, bootstrap=bootstrap)


@contextmanager
def quick_session(file: SpecFile) -> "Iterator[SparkSession]":
    """A session in this process, only to plan with."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        say("Starting Spark …")
        spark = start_session(file.spec, "local[1]", Path(folder), is_brief=True)
        try:
            yield spark
        finally:
            spark.stop()


def validate_file(file: Path, bootstrap: str | None, *, as_json: bool) -> None:
    read = load(file, bootstrap)
    check_ready()
    from headrace.pipelines.validate import validate

    with quick_session(read) as spark:
        checked = validate(spark, read)
        if as_json:
            modes = {each.name: each.mode for each in checked.queries}
            print_json({"name": read.spec.name, "modes": modes, "notes": checked.notes(read)})
            return
        for query in checked.queries:
            print(f"{query.name}: {query.mode}, {_columns(query.columns)}")
        for note in checked.notes(read):
            print(f"note: {note}")
    print(f"{file} is valid")


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def explain_file(file: Path, bootstrap: str | None) -> None:
    read = load(file, bootstrap)
    check_ready()
    from headrace.pipelines.validate import validate

    with quick_session(read) as spark:
        for query in validate(spark, read).queries:
            print(f"-- {query.name} ({query.mode})")
            query.rows.explain()
