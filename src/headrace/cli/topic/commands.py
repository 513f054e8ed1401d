"""`headrace topic`: create, list, describe, alter, delete and truncate topics."""

from typing import Annotated

import typer

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.names import complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs

topic_app = typer.Typer(help="Create, list, describe, change and delete topics.", no_args_is_help=True)

_NewTopic = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.", show_default=False)]
_Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The name of the topic.", show_default=False, autocompletion=complete_topics),
]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topic; may be given again."),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before data is deleted.")]


@topic_app.command("create")
def create(
    topic: _NewTopic,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="How many partitions; without it the broker decides.", show_default=False
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Copies of each partition, on as many brokers; without it the broker decides.",
            show_default=False,
        ),
    ] = None,
    settings: _Set = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists already is no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a topic.

    Examples:

    * `headrace topic create orders --partitions 12`
    * `headrace topic create prices --set cleanup.policy=compact --set retention.ms=-1`
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin

    pairs = parse_pairs(settings or [], "--set")
    broker = Admin(bootstrap)
    broker.cluster()
    new = NewTopic(topic, partitions or -1, replication_factor=replicas or -1, config=pairs)
    futures = broker.call(
        broker.admin.create_topics, [new], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
    )
    try:
        futures[topic].result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS and if_not_exists:
            print(f"The topic {topic} exists already")
            return
        raise broker.failed(error, f"the topic {topic} was not created") from None
    print(f"Created the topic {topic}")


@topic_app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also those that the broker keeps for itself.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the topics with their partitions.

    Example: `headrace topic list`
    """
    from headrace.cli.admin import Admin
    from headrace.cli.output import print_json, table

    found = Admin(bootstrap).cluster().topics.values()
    topics = sorted((topic.topic, len(topic.partitions)) for topic in found if internal or topic.topic[:2] != "__")
    if as_json:
        print_json([{"topic": name, "partitions": partitions} for name, partitions in topics])
    elif topics:
        table(None, [("TOPIC", "left"), ("PARTITIONS", "right")], list(topics))
    else:
        print("There are no topics yet, or none that you may see; `headrace topic create NAME` makes one")


@topic_app.command("describe")
def describe(
    topic: _Topic,
    all_settings: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a topic: partitions with offsets and sizes, and its settings with where each value comes from.

    In a cluster also: who leads each partition, which replicas are in sync or offline, and how far each is behind.

    Example: `headrace topic describe orders --all`
    """
    from headrace.cli.output import print_json
    from headrace.cli.topic.describe import describe_topic, print_description

    description = describe_topic(bootstrap, topic)
    if as_json:
        print_json(description)
    else:
        print_description(description, all_settings=all_settings)


@topic_app.command("alter")
def alter(
    topic: _Topic,
    settings: _Set = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default; may be given again.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Add partitions until there are so many.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the settings of a topic, or add partitions to it. Takes effect at once.

    Examples:

    * `headrace topic alter orders --set retention.ms=86400000`
    * `headrace topic alter orders --unset retention.ms --partitions 24`
    """
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        NewPartitions,
        ResourceType,
    )

    from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin

    pairs = parse_pairs(settings or [], "--set")
    if not pairs and not unset and partitions is None:
        raise BadArgument("nothing to change: give --set NAME=VALUE, --unset NAME or --partitions N")
    broker = Admin(bootstrap)
    there = len(broker.partitions(topic))
    if partitions is not None and partitions <= there:
        raise CommandFailed(f"{topic} has {there} partitions, so it cannot grow to {partitions}; nothing was changed")

    def entry(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        return ConfigEntry(name, value, source=source, incremental_operation=operation)

    entries = [entry(name, value, AlterConfigOpType.SET) for name, value in pairs.items()]
    entries += [entry(name, None, AlterConfigOpType.DELETE) for name in unset or []]
    if entries:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        changed = broker.call(broker.admin.incremental_alter_configs, [resource], request_timeout=REQUEST_TIMEOUT_S)
        for future in changed.values():
            broker.wait(future)
        print(f"Changed {', '.join([*pairs, *(unset or [])])} of {topic}")
    if partitions is not None:
        grown = broker.call(
            broker.admin.create_partitions,
            [NewPartitions(topic, partitions)],
            operation_timeout=REQUEST_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        broker.wait(grown[topic])
        print(f"{topic} has {partitions} partitions now")


@topic_app.command("delete")
def delete(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC…", help="The names of the topics.", show_default=False, autocompletion=complete_topics
        ),
    ],
    yes: _Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with everything in them.

    Example: `headrace topic delete orders --yes`
    """
    from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin

    broker = Admin(bootstrap)
    for topic in topics:
        broker.partitions(topic)
    _confirm(f"Delete {', '.join(topics)} with everything in {'it' if len(topics) == 1 else 'them'}?", yes)
    futures = broker.call(
        broker.admin.delete_topics, topics, operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
    )
    broker.wait_each(futures, "the topic {} was not deleted", lambda topic: print(f"Deleted the topic {topic}"))


@topic_app.command("shred")
def shred(topic: _Topic, yes: _Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Destroy the data keys of an encrypted topic: every copy of its records becomes unreadable at once.

    That includes replicas, brokers that are down, backups of the data directory and files that were deleted but not
    overwritten. It cannot be undone. The topic stays; `encryption.at.rest=true` makes a new key for new records.

    Example: `headrace topic shred payments --yes`
    """
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType

    from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin

    broker = Admin(bootstrap)
    broker.partitions(topic)
    _confirm(f"Destroy the data keys of {topic}, so that its records can never be read again?", yes)
    source, operation = ConfigSource.DYNAMIC_TOPIC_CONFIG, AlterConfigOpType.SET
    entry = ConfigEntry("encryption.at.rest", "shredded", source=source, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    changed = broker.call(broker.admin.incremental_alter_configs, [resource], request_timeout=REQUEST_TIMEOUT_S)
    for future in changed.values():
        broker.wait(future)
    print(f"Destroyed the data keys of {topic}: its records cannot be read any more")


@topic_app.command("truncate")
def truncate(
    topic: _Topic,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only this partition; without it all.", show_default=False)
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(min=0, metavar="OFFSET", help="Keep records from this offset on; by default none."),
    ] = None,
    yes: _Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete the records of a topic, all or those before an offset. The topic and its settings stay.

    Examples:

    * `headrace topic truncate orders`
    * `headrace topic truncate orders --partition 3 --before 120000`
    """
    from confluent_kafka import OFFSET_END, TopicPartition

    from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin

    broker = Admin(bootstrap)
    partitions = broker.partitions(topic)
    if partition is not None:
        if partition not in partitions:
            raise CommandFailed(f"{topic} has no partition {partition}, only 0 to {partitions[-1]}")
        partitions = [partition]
    where = f"partition {partition} of {topic}" if partition is not None else topic
    what = "all records" if before is None else f"the records before offset {before}"
    _confirm(f"Delete {what} of {where}?", yes)
    offset = OFFSET_END if before is None else before
    futures = broker.call(
        broker.admin.delete_records,
        [TopicPartition(topic, index, offset) for index in partitions],
        operation_timeout=REQUEST_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    for future_of, future in sorted(futures.items(), key=lambda item: int(item[0].partition)):
        deleted = broker.wait(future)
        print(f"{topic} partition {future_of.partition} starts at offset {deleted.low_watermark} now")


def _confirm(question: str, yes: bool) -> None:
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise BadArgument("this deletes data and there is no terminal to confirm on: add --yes")
    typer.confirm(question, abort=True)
