"""`headrace produce`: lines from stdin or a file become messages."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.names import complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_pairs

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def produce(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="The topic to send to; made if need be.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where lines come from; stdin if left out.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-k", help="What stands between key and value in a line, such as a colon or a comma."
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Each line is an object with key, value, headers, partition, timestamp."),
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", "-s", metavar="SUBJECT", help="Values are JSON, and are encoded by the schema of this subject."
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option("--message", metavar="NAME", help="With --schema: the message of a .proto file with several."),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every message; may be given again."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Send all to this partition; without it the key decides."),
    ] = None,
    acks: Annotated[
        Literal["0", "1", "all"],
        typer.Option(
            help="When a message counts as sent: at once, when the leader has it, or when all in sync have it."
        ),
    ] = "all",
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How batches are compressed.")
    ] = "none",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no count at the end.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send each line of stdin or of a file as a message.

    Ends when the input ends and every message is acknowledged; one that is refused makes the exit code 1.

    Examples:

    * `echo hello | headrace produce greetings`
    * `headrace produce orders orders.csv --key-separator , --compression zstd`
    * `headrace consume orders --from-beginning --format json | headrace produce orders-copy --json`
    * `echo '{"id": 1, "item": "tea"}' | headrace produce orders --schema orders-value`
    """
    from headrace.cli.produce.run import ProduceOptions, send_lines

    if message is not None and schema is None:
        raise BadArgument("--message chooses a message of the schema that --schema names: give both")
    send_lines(
        bootstrap,
        topic,
        file,
        ProduceOptions(
            key_separator=None if key_separator is None else key_separator.encode(),
            as_json=as_json,
            headers=[(name, value.encode()) for name, value in parse_pairs(headers or [], "--header").items()],
            partition=partition,
            acks=acks,
            compression=compression,
            quiet=quiet,
            schema=schema,
            message=message,
        ),
    )
