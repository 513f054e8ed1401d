"""`headrace quota`: who may use how much, and who does."""

from typing import Annotated

import typer

from headrace.cli.names import complete_users
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

quota_app = typer.Typer(
    help="Say how much of each broker clients may use, and see how much they do.", no_args_is_help=True
)

_User = Annotated[str, typer.Option("--user", metavar="NAME", help="For this user.", autocompletion=complete_users)]
_DefaultUser = Annotated[
    bool, typer.Option("--default-user", help="For each user without a quota of its own, by itself.")
]
_ClientId = Annotated[str, typer.Option("--client-id", metavar="ID", help="For this client id.")]
_DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="For each client id without a quota of its own, by itself.")
]
_Prefix = Annotated[
    str,
    typer.Option("--client-id-prefix", metavar="PREFIX", help="For all client ids that begin with this, together."),
]
_Ip = Annotated[str, typer.Option("--ip", metavar="ADDRESS", help="For this IP address.")]
_DefaultIp = Annotated[bool, typer.Option("--default-ip", help="For each address without a quota of its own.")]
_Queue = Annotated[str, typer.Option("--queue", metavar="QUEUE", help="For requests over SQS to this queue.")]
_DefaultQueue = Annotated[bool, typer.Option("--default-queue", help="For each queue without a quota of its own.")]
_AccessKey = Annotated[
    str, typer.Option("--access-key", metavar="ID", help="For requests over SQS that are signed with this access key.")
]
_DefaultAccessKey = Annotated[
    bool, typer.Option("--default-access-key", help="For each access key without a quota of its own.")
]
_TopicPrefix = Annotated[
    str,
    typer.Option(
        "--topic-prefix", metavar="PREFIX", help="For all topics and queues whose names begin with this, together."
    ),
]
_Http = Annotated[
    str,
    typer.Option(
        "--http", metavar="URL", envvar="HEADRACE_HTTP", help="The broker's HTTP address; without it brokers are asked."
    ),
]


@quota_app.command("set")
def set_quota(
    user: _User = "",
    default_user: _DefaultUser = False,
    client_id: _ClientId = "",
    default_client_id: _DefaultClientId = False,
    client_id_prefix: _Prefix = "",
    ip: _Ip = "",
    default_ip: _DefaultIp = False,
    queue: _Queue = "",
    default_queue: _DefaultQueue = False,
    access_key: _AccessKey = "",
    default_access_key: _DefaultAccessKey = False,
    topic_prefix: _TopicPrefix = "",
    produce: Annotated[
        str | None, typer.Option("--produce", metavar="BYTES", help="Bytes each second that it may produce, as 5MB.")
    ] = None,
    consume: Annotated[
        str | None, typer.Option("--consume", metavar="BYTES", help="Bytes each second that it may consume, as 5MB.")
    ] = None,
    time: Annotated[
        float | None,
        typer.Option("--time", metavar="PERCENT", help="Percent of the broker's time that its requests may take."),
    ] = None,
    changes: Annotated[
        float | None,
        typer.Option("--changes", metavar="RATE", help="Partitions each second that it may create and delete."),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option("--connections", metavar="RATE", help="Connections each second that an address may open."),
    ] = None,
    requests: Annotated[
        float | None, typer.Option("--requests", metavar="RATE", help="Requests over SQS each second.")
    ] = None,
    messages: Annotated[
        float | None, typer.Option("--messages", metavar="RATE", help="Messages sent over SQS each second.")
    ] = None,
    stored: Annotated[
        str | None,
        typer.Option("--stored", metavar="BYTES", help="Bytes that a prefix of topics may store in all, as 50GB."),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set quotas. They hold for each broker, at once, and others of the same entity stay as they are.

    Who exceeds one is slowed down, not refused. A user and a client id together are for that client of that user. If
    several quotas match a client, the most specific one applies: docs/quotas.md has the order. What topics with a
    prefix store is limited in the whole cluster: above 90 % producers are slowed down; what does not fit is refused.

    Examples:

    * `headrace quota set --user alice --produce 5MB --consume 20MB`
    * `headrace quota set --default-user --time 25`
    * `headrace quota set --user alice --client-id-prefix batch- --produce 500KB`
    * `headrace quota set --ip 10.0.0.7 --connections 20`
    * `headrace quota set --queue orders --requests 100 --messages 500`
    * `headrace quota set --topic-prefix tenant-a. --stored 50GB`
    """
    from headrace.cli.quota.run import entity_of, limits_of, set_quotas

    entity = entity_of(
        user=(user, default_user),
        client_id=(client_id, default_client_id),
        prefix=client_id_prefix,
        ip=(ip, default_ip),
        queue=(queue, default_queue),
        access_key=(access_key, default_access_key),
        topic_prefix=topic_prefix,
    )
    limits = limits_of(
        produce=produce,
        consume=consume,
        time=time,
        changes=changes,
        connections=connections,
        requests=requests,
        messages=messages,
        stored=stored,
    )
    set_quotas(bootstrap, entity, limits, as_json=as_json)


@quota_app.command("list")
def list_quotas(as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List all quotas, those that apply first at the top.

    Examples:

    * `headrace quota list`
    * `headrace quota list --json`
    """
    from headrace.cli.quota.run import show_quotas

    show_quotas(bootstrap, as_json=as_json)


@quota_app.command("remove")
def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUOTA]…",
            help="produce, consume, time, changes, connections, requests, messages or stored; without one, all.",
        ),
    ] = None,
    user: _User = "",
    default_user: _DefaultUser = False,
    client_id: _ClientId = "",
    default_client_id: _DefaultClientId = False,
    client_id_prefix: _Prefix = "",
    ip: _Ip = "",
    default_ip: _DefaultIp = False,
    queue: _Queue = "",
    default_queue: _DefaultQueue = False,
    access_key: _AccessKey = "",
    default_access_key: _DefaultAccessKey = False,
    topic_prefix: _TopicPrefix = "",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove quotas of one entity, named as with `set`. A less specific quota applies from then on, or none.

    Examples:

    * `headrace quota remove --user alice`
    * `headrace quota remove produce --user alice --client-id app-1`
    """
    from headrace.cli.quota.run import entity_of, remove_quotas

    entity = entity_of(
        user=(user, default_user),
        client_id=(client_id, default_client_id),
        prefix=client_id_prefix,
        ip=(ip, default_ip),
        queue=(queue, default_queue),
        access_key=(access_key, default_access_key),
        topic_prefix=topic_prefix,
    )
    remove_quotas(bootstrap, entity, names or [], as_json=as_json)


@quota_app.command("top")
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one picture and exit.")] = False,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.5, help="How often to refresh.")] = 2.0,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show who uses how much of what, live, on all brokers together: those closest to their quota first.

    Clients without a quota are counted from the first look on; rates are those of the last ten seconds. The limit is
    that of each broker. Ctrl-C ends it. Without a terminal, and with --once or --json, it prints one picture.

    Examples:

    * `headrace quota top`
    * `headrace quota top --once --json`
    """
    from headrace.cli.quota.run import show_use

    show_use(bootstrap, http, once=once or as_json, every_s=every, as_json=as_json)
