"""`headrace pipeline archive` and `replay`: a topic to Parquet files, and from them back into a topic."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.names import complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from headrace.model.extras import ARCHIVE, require


def archive(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to archive.", show_default=False, autocompletion=complete_topics
        ),
    ],
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FOLDER", help="The archive's directory; made if need be.", show_default=False),
    ],
    once: Annotated[bool, typer.Option("--once", help="Archive the present messages, and end.")] = False,
    iceberg: Annotated[
        bool, typer.Option("--iceberg", help="Make it an Iceberg table, with its catalog in the directory.")
    ] = False,
    table: Annotated[
        str,
        typer.Option("--table", metavar="NAMESPACE.NAME", help="The Iceberg table's name; else headrace.<topic>."),
    ] = "",
    catalog: Annotated[
        str,
        typer.Option("--catalog", metavar="URL|NAME", help="An Iceberg REST catalog, or one that pyiceberg knows."),
    ] = "",
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="How long records wait to share a file.")
    ] = 60.0,
    file_size: Annotated[
        int, typer.Option("--file-size", metavar="MIB", min=1, help="How large files become, about.")
    ] = 128,
    merge_after: Annotated[
        int, typer.Option("--merge-after", min=0, help="Merge when so many small files are in a row; 0: never.")
    ] = 8,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Keep the committed records of a topic as Parquet files, for longer than the topic keeps them.

    Runs until Ctrl-C, or with `--once` until all that is there is archived. Whenever it stops, and however, it goes on
    where it was, without repeating or leaving out a record. One archiver at a time for a directory. It needs no Spark,
    but `pip install 'headrace[archive]'`.

    Read an archive as a table with `headrace.pipelines.read_topic_table`, which adds what is not archived yet; or
    FOLDER/data with any reader of Parquet.

    Examples:

    * `headrace pipeline archive orders --to lake/orders`
    * `headrace pipeline archive orders --to lake/orders --once --iceberg`
    """
    from headrace.cli.pipeline.archive import archive_topic

    require(ARCHIVE)
    from headrace.pipelines.archive.archiver import ArchiveOptions

    if (table or catalog) and not iceberg:
        raise BadArgument("--table and --catalog are for Iceberg tables: add --iceberg")
    options = ArchiveOptions(
        topic=topic,
        path=str(to),
        iceberg=iceberg,
        table=table,
        catalog=catalog,
        every_s=every,
        target_file_bytes=file_size << 20,
        compact_after=merge_after,
    )
    archive_topic(options, bootstrap, once=once, as_json=as_json)


def replay(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="The archive's directory.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="The topic to write to.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ],
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only from this time on: 2026-01-31T12:00 or '5m ago'."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only before this time.")] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Write records of an archive back into a topic, with the keys, values, headers and times they had.

    Each record goes to the partition it came from, in the order of offsets. Where the topic has fewer partitions, some
    share one. A replay that is interrupted and started again writes its records again: choose a new topic for it.

    Example: `headrace pipeline replay lake/orders --to orders-again --since 2026-01-31 --until 2026-02-01`
    """
    from headrace.cli.pipeline.archive import replay_archive
    from headrace.cli.times import parse_time

    require(ARCHIVE)
    from headrace.pipelines.archive.replay import ReplayFilter

    wanted = ReplayFilter(
        since_ms=None if since is None else parse_time(since),
        until_ms=None if until is None else parse_time(until),
        partitions=frozenset(partition) if partition else None,
    )
    replay_archive(source, to, wanted, bootstrap, as_json=as_json)
