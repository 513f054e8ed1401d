"""`headrace log`: look into the files of a data directory, with or without a broker running on it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

log_app = typer.Typer(
    help="Look into the files that a broker stores, read-only; the broker may be running.", no_args_is_help=True
)

_Where = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A data directory, a partition's folder (`orders-0`) or a single `.log` file.",
        show_default=False,
    ),
]
_Topic = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.", show_default=False)
]
_Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.", show_default=False)
]


@log_app.command("dump")
def dump(
    path: _Where,
    topic: _Topic = None,
    partition: _Partition = None,
    start: Annotated[
        int, typer.Option("--from", metavar="OFFSET", min=0, help="Start with this offset.", show_default=False)
    ] = 0,
    end: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", min=0, help="Stop before this offset.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only from this time on: 2026-01-31T12:00 or '5m ago'."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only before this time.")] = None,
    maximum: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many lines.")] = None,
    batches: Annotated[
        bool, typer.Option("--batches", "-B", help="A line per record batch, with its header, instead of per record.")
    ] = False,
    output: Annotated[
        Literal["text", "hex", "json"],
        typer.Option("--format", help="Keys and values as text where they are text, in hex, or all as JSON lines."),
    ] = "text",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The settings of a broker, for the master key of encrypted topics.",
            envvar="HEADRACE_CONFIG",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print what is stored: offsets, timestamps, keys, values and headers, in the order of the log.

    Records that were replaced by compaction or removed by retention are gone; those that a topic's start offset hides
    are still shown. A damaged batch is named on stderr, the dump goes on behind it, and the exit code is 1.

    Encrypted topics are decrypted with the master key of a broker's settings, from `--config` or the environment. The
    data keys are read from the data directory, or from etcd if the settings name it.

    Examples:

    * `headrace log dump headrace-data --topic orders --partition 0 --from 1200 --max 20`
    * `headrace log dump headrace-data/orders-0 --since '1h ago' --format json | jq .value`
    * `headrace log dump headrace-data/orders-0/00000000000000000000.log --batches`
    * `headrace log dump headrace-data --topic payments --config headrace.toml`
    """
    from headrace.cli.log.run import Selection, dump_logs, select_logs
    from headrace.cli.times import parse_time

    selection = Selection(
        start=start,
        end=end,
        since_ms=None if since is None else parse_time(since),
        until_ms=None if until is None else parse_time(until),
        maximum=maximum,
        batches=batches,
        output=output,
    )
    if not dump_logs(select_logs(path, topic, partition), selection, config):
        raise typer.Exit(1)


@log_app.command("verify")
def verify(
    path: _Where,
    topic: _Topic = None,
    partition: _Partition = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Also decode every record that is not encrypted; slower, finds what checksums cannot."
        ),
    ] = False,
) -> None:
    """Check every batch's checksum, the order of offsets, and that the indexes agree with the log.

    Prints each problem with file and position. Exit code 0: all is well. 1: something is wrong.

    A broker repairs what it can when it starts: it cuts a torn end off, rebuilds wrong indexes, and renames a segment
    with damage in the middle. Damage behind an intact end of the log is worth a look at the disk.

    Examples:

    * `headrace log verify headrace-data`
    * `headrace log verify headrace-data --topic orders --records`
    """
    from headrace.cli.log.run import select_logs, verify_logs

    if not verify_logs(select_logs(path, topic, partition), decode=records):
        raise typer.Exit(1)
