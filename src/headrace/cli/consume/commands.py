"""`headrace consume`: messages to stdout."""

from typing import Annotated, Literal

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.names import complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap


def consume(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="The topic to read.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", "-a", help="Read all messages that are there.")
    ] = False,
    offset: Annotated[
        int | None,
        typer.Option("--offset", "-o", metavar="N", help="From this offset; -5: the last five of each partition."),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", "-t", metavar="TIME", help="From a time: 2026-01-31T12:00 or '5m ago'."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be given again.")
    ] = None,
    maximum: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many messages.")] = None,
    follow: Annotated[
        bool | None,
        typer.Option("--follow/--exit", "-f/-e", help="At the end, wait for more or stop.", show_default=False),
    ] = None,
    output: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Values as they are, or everything as JSON lines.")
    ] = "text",
    keys: Annotated[bool, typer.Option("--keys", "-k", help="Print the key and a tab before each value.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", "-d", help="Show values as JSON, by the schemas that they were written with.")
    ] = False,
    committed: Annotated[
        bool, typer.Option("--committed/--uncommitted", help="Leave out or show messages of aborted transactions.")
    ] = True,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the messages of a topic.

    Without a starting point it waits for new messages, like `tail -f`, until Ctrl-C. With one it prints what is there
    up to the present end and stops, like `cat`; add `--follow` to go on. No consumer group is used: reading here
    changes nothing for other consumers.

    Examples:

    * `headrace consume orders`
    * `headrace consume orders --from-beginning --max 10 --keys`
    * `headrace consume orders --offset -1 --format json`
    * `headrace consume orders --from-time '5m ago' --follow`
    * `headrace consume orders --from-beginning --decode`

    With `--decode`, a value that does not fit its schema is shown as `{"error": "the reason", "base64": "the bytes"}`,
    and one without a schema as it is.
    """
    from headrace.cli.consume.run import ConsumeOptions, print_messages
    from headrace.cli.times import parse_time

    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise BadArgument("give one of --from-beginning, --offset and --from-time")
    has_start = from_beginning or offset is not None or from_time is not None
    print_messages(
        bootstrap,
        topic,
        ConsumeOptions(
            from_beginning=from_beginning,
            offset=offset,
            from_time_ms=None if from_time is None else parse_time(from_time),
            partitions=partition or None,
            maximum=maximum,
            follow=not has_start if follow is None else follow,
            as_json=output == "json",
            keys=keys,
            committed=committed,
            decode=decode,
        ),
    )
