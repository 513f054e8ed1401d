"""`headrace queue`: create, list, describe, alter and delete queues; send, receive, peek and move messages."""

from typing import Annotated, Literal

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.names import complete_queues
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, bootstrap_option, parse_pairs

queue_app = typer.Typer(
    help="Work that is handed out, acknowledged and retried: create queues, send, receive, peek, redrive.",
    epilog="A queue is a topic whose messages are leased: each goes to one receiver, is hidden from others while that "
    "one works, and is redelivered unless it is acknowledged. HEADRACE_ACCESS_KEY=ID:SECRET is for brokers with "
    "sqs.access.keys.",
    no_args_is_help=True,
)

_NewQueue = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False)]
_Queue = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False, autocompletion=complete_queues),
]
_Bootstrap = Annotated[str, bootstrap_option("The broker to talk to, which must be Headrace; any of a cluster.")]
_Http = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="URL",
        envvar="HEADRACE_HTTP",
        help="Where the broker serves queues; by default the broker is asked for it.",
        show_default=False,
    ),
]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting of queues (docs/settings.md); may be given again."),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before messages are deleted.")]


def _duration(name: str, text: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(name, metavar="TIME", help=text, show_default=False)
    return found


_Visibility = Annotated[str | None, _duration("--visibility", "How long a received message is hidden: 30s, 5m, 1h.")]
_Delay = Annotated[str | None, _duration("--delay", "How long a message is hidden after it was sent.")]
_Retention = Annotated[str | None, _duration("--retention", "Unacknowledged messages are deleted after: 4d, 12h.")]
_MaxReceives = Annotated[
    int | None,
    typer.Option("--max-receives", min=0, metavar="N", help="After N receives to the dead-letter queue."),
]
_DeadLetter = Annotated[
    str | None,
    typer.Option(
        "--dead-letter",
        metavar="QUEUE",
        help="Where failed messages go; made if need be.",
        autocompletion=complete_queues,
    ),
]
_Backoff = Annotated[
    str | None, _duration("--backoff", "How long a message waits after its first failure; then twice as long, …")
]
_MaxBacklog = Annotated[
    int | None,
    typer.Option(
        "--max-backlog", min=0, metavar="N", help="The most messages, available, in flight and delayed; 0: any number."
    ),
]
_MaxBacklogBytes = Annotated[
    str | None, typer.Option("--max-backlog-bytes", metavar="SIZE", help="The most bytes of messages: 500MB, 10GB.")
]
_MaxBacklogAge = Annotated[str | None, _duration("--max-backlog-age", "The largest age of the oldest message: 1h.")]
_MaxBacklogPolicy = Annotated[
    Literal["block", "refuse", "drop-oldest"] | None,
    typer.Option(
        "--max-backlog-policy",
        help="At these bounds: senders wait, get an error, or the oldest messages are dropped.",
    ),
]
_Contains = Annotated[str, typer.Option("--contains", metavar="TEXT", help="Only those with this in their body.")]
_Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Only those that failed with this.")]
_Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be given again.")]


@queue_app.command("create")
def create(
    queue: _NewQueue,
    fifo: Annotated[bool, typer.Option("--fifo", help="In order within a group, without duplicates.")] = False,
    visibility: _Visibility = None,
    delay: _Delay = None,
    retention: _Retention = None,
    max_receives: _MaxReceives = None,
    dead_letter: _DeadLetter = None,
    backoff: _Backoff = None,
    max_backlog: _MaxBacklog = None,
    max_backlog_bytes: _MaxBacklogBytes = None,
    max_backlog_age: _MaxBacklogAge = None,
    max_backlog_policy: _MaxBacklogPolicy = None,
    settings: _Set = None,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a queue. One that is there with the same settings is fine.

    Examples:

    * `headrace queue create emails`
    * `headrace queue create emails --max-receives 5 --dead-letter emails-dead --backoff 1s`
    * `headrace queue create orders.fifo --fifo --visibility 5m --set dedupe.by.content=true`
    * `headrace queue create jobs --max-backlog 10000 --max-backlog-policy refuse`
    """
    from headrace.cli.queue.run import backlog_options, create_queue, options_of

    options = options_of(visibility, delay, retention, max_receives, dead_letter, backoff, settings or [])
    options |= backlog_options(max_backlog, max_backlog_bytes, max_backlog_age, max_backlog_policy)
    create_queue(bootstrap, http, queue, {"type": "fifo" if fifo else "standard", **options})


@queue_app.command("list")
def list_queues(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="How their names begin.")] = "",
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the queues with how many messages are available, in flight and delayed.

    Example: `headrace queue list`
    """
    from headrace.cli.queue.run import list_all

    list_all(bootstrap, http, prefix, as_json=as_json)


@queue_app.command("describe")
def describe(
    queue: _Queue,
    all_settings: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a queue: its messages by state, its settings, and the latest moves out of it.

    Example: `headrace queue describe emails`
    """
    from headrace.cli.queue.run import describe_queue

    describe_queue(bootstrap, http, queue, all_settings=all_settings, as_json=as_json)


@queue_app.command("alter")
def alter(
    queue: _Queue,
    visibility: _Visibility = None,
    delay: _Delay = None,
    retention: _Retention = None,
    max_receives: _MaxReceives = None,
    dead_letter: _DeadLetter = None,
    backoff: _Backoff = None,
    max_backlog: _MaxBacklog = None,
    max_backlog_bytes: _MaxBacklogBytes = None,
    max_backlog_age: _MaxBacklogAge = None,
    max_backlog_policy: _MaxBacklogPolicy = None,
    settings: _Set = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default; may be given again.")
    ] = None,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the settings of a queue. Takes effect at once; messages that are in flight keep their leases.

    Examples:

    * `headrace queue alter emails --visibility 2m`
    * `headrace queue alter emails --unset dead.letter --unset max.receives`
    """
    from headrace.cli.queue.run import alter_queue, backlog_options, options_of

    options = options_of(visibility, delay, retention, max_receives, dead_letter, backoff, settings or [])
    options |= backlog_options(max_backlog, max_backlog_bytes, max_backlog_age, max_backlog_policy)
    if not options and not unset:
        raise BadArgument("nothing to change: give --visibility, --set NAME=VALUE, --unset NAME or the like")
    alter_queue(bootstrap, http, queue, options, unset or [])


@queue_app.command("send")
def send(
    queue: _Queue,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BODY]…", help="The messages; without any, each line of stdin is one."),
    ] = None,
    delay: Annotated[str | None, _duration("--delay", "Not to be received before so long from now.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Not to be received before: 2030-01-31T12:00, 'in 2h'.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="From 0 to 9: higher ones are received first. Default: 4")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="The message group, within which order is guaranteed; required by a FIFO queue.")
    ] = None,
    dedupe: Annotated[
        str | None,
        typer.Option(help="In a fifo queue: a deduplication id; repeats within five minutes are dropped."),
    ] = None,
    ttl: Annotated[str | None, _duration("--ttl", "Not to be received after so long from now.")] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every message; may be given again."),
    ] = None,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send messages: those given, or each line of stdin. Ends when all are stored, and prints how many.

    Examples:

    * `headrace queue send emails '{"to": "alice@example.org"}'`
    * `headrace queue send emails 'good morning' --at 2030-01-01T08:00`
    * `headrace queue send emails --priority 9 < urgent.jsonl`
    """
    from datetime import UTC, datetime

    from headrace.cli.queue.run import send_messages
    from headrace.cli.times import parse_duration, parse_time_to_come
    from headrace.client.queue.message import SendOptions

    options = SendOptions(priority=priority, group=group, dedupe=dedupe)
    if delay is not None:
        options["delay"] = parse_duration(delay)
    if at is not None:
        options["at"] = datetime.fromtimestamp(parse_time_to_come(at) / 1000, UTC)
    if ttl is not None:
        options["ttl"] = parse_duration(ttl)
    if headers:
        options["headers"] = parse_pairs(headers, "--header")
    send_messages(bootstrap, http, queue, bodies or None, options, as_json=as_json)


@queue_app.command("receive")
def receive(
    queue: _Queue,
    maximum: Annotated[int, typer.Option("--max", "-n", min=1, help="Stop after this many messages.")] = 1,
    wait: Annotated[str, _duration("--wait", "How long to wait for messages; 20s by default.")] = "20s",
    visibility: _Visibility = None,
    then: Annotated[
        Literal["ack", "nack", "keep"],
        typer.Option(
            "--then",
            help="What becomes of them: acknowledged, returned at once, or hidden until their visibility timeout ends.",
        ),
    ] = "ack",
    output: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Bodies as they are, or everything as JSON lines.")
    ] = "text",
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Receive messages and print them. Each is acknowledged when it is printed, so it does not come again.

    To look at messages without taking them, use `headrace queue peek`. With `--then nack` or `keep` they come again,
    and count as received once more.

    Examples:

    * `headrace queue receive emails`
    * `headrace queue receive emails --max 100 --wait 5s --format json`
    """
    from headrace.cli.queue.run import receive_messages
    from headrace.cli.times import parse_duration

    lease_s = None if visibility is None else parse_duration(visibility)
    receive_messages(
        bootstrap, http, queue, maximum, parse_duration(wait), lease_s, then=then, as_json=output == "json"
    )


@queue_app.command("peek")
def peek(
    queue: _Queue,
    maximum: Annotated[int, typer.Option("--max", "-n", min=1, help="How many messages to show.")] = 10,
    ids: _Ids = None,
    contains: _Contains = "",
    reason: _Reason = "",
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Look at messages in the order of sending, also those in flight or delayed. Nothing changes by looking.

    Examples:

    * `headrace queue peek emails`
    * `headrace queue peek emails-dead --reason Timeout --json`
    """
    from headrace.cli.queue.run import peek_messages

    peek_messages(bootstrap, http, queue, maximum, ids or [], contains, reason, as_json=as_json)


@queue_app.command("purge")
def purge(queue: _Queue, yes: _Yes = False, http: _Http = "", bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Forget every message that was sent before now, also those in flight. The queue and its settings stay.

    Example: `headrace queue purge emails --yes`
    """
    from headrace.cli.queue.run import purge_queue

    _confirm(f"Forget all messages of {queue}?", yes)
    purge_queue(bootstrap, http, queue)


@queue_app.command("redrive")
def redrive(
    queue: _Queue,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="QUEUE",
            help="Where to; without it, each to where it came from.",
            autocompletion=complete_queues,
        ),
    ] = None,
    ids: _Ids = None,
    contains: _Contains = "",
    reason: _Reason = "",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only those sent since: 2026-01-31 or '2h ago'.")
    ] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="TIME", help="Only those sent before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="No more than this many.")] = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, metavar="N", help="At most N messages a second.")] = None,
    background: Annotated[bool, typer.Option("--background", help="Begin it and do not wait for its end.")] = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move messages out of a queue, as out of a dead-letter queue when the cause is fixed. Ctrl-C cancels it.

    The broker does it, so it also goes on when this command is killed; `headrace queue describe` shows how far it is.

    Examples:

    * `headrace queue redrive emails-dead`
    * `headrace queue redrive emails-dead --reason Timeout --rate 100`
    * `headrace queue redrive emails --to emails-slow --limit 1000`
    """
    from datetime import UTC, datetime

    from headrace.cli.queue.run import MoveFilter, redrive_messages
    from headrace.cli.times import parse_time

    def when(text: str | None) -> datetime | None:
        return None if text is None else datetime.fromtimestamp(parse_time(text) / 1000, UTC)

    wanted = MoveFilter(ids or [], contains, reason, when(since), when(before), limit)
    redrive_messages(bootstrap, http, queue, to, wanted, rate, background=background)


@queue_app.command("delete")
def delete(
    queues: Annotated[
        list[str],
        typer.Argument(
            metavar="QUEUE…", help="The names of the queues.", show_default=False, autocompletion=complete_queues
        ),
    ],
    yes: _Yes = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete queues with everything in them.

    Example: `headrace queue delete emails emails-dead --yes`
    """
    from headrace.cli.queue.run import delete_queues

    _confirm(f"Delete {', '.join(queues)} with everything in {'it' if len(queues) == 1 else 'them'}?", yes)
    delete_queues(bootstrap, http, queues)


def _confirm(question: str, yes: bool) -> None:
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise BadArgument("this deletes data and there is no terminal to confirm on: add --yes")
    typer.confirm(question, abort=True)
