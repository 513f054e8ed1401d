"""`headrace clients`: who is connected, clients that push their metrics, and subscriptions to them."""

from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

clients_app = typer.Typer(
    help="See which Kafka clients are connected, and the metrics that they push to the brokers.", no_args_is_help=True
)

_Http = Annotated[
    str,
    typer.Option(
        "--http", metavar="URL", envvar="HEADRACE_HTTP", help="The broker's HTTP address; without it brokers are asked."
    ),
]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.", show_default=False)]


@clients_app.command("list")
def list_clients(
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Those that ask which metrics to push, and what they have pushed.")
    ] = False,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the clients that are connected to the brokers: software, address, user, connections, requests and bytes.

    Examples:

    * `headrace clients list`
    * `headrace clients list --metrics --json`
    """
    from headrace.cli.clients.run import show_clients, show_pushing_clients

    if metrics:
        show_pushing_clients(bootstrap, http, as_json=as_json)
    else:
        show_clients(bootstrap, http, as_json=as_json)


@clients_app.command("show")
def show(
    client: Annotated[
        str, typer.Argument(metavar="ID", help="The client instance id, or the client id of one.", show_default=False)
    ],
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the metrics that a client pushed last. Counters are added up since the broker knows the client.

    Examples:

    * `headrace clients show shop-1`
    * `headrace clients show 5fdd6b2e-0a3c-4c5e-8f44-3a3a4a6d2a11 --json`
    """
    from headrace.cli.clients.run import show_client

    show_client(bootstrap, http, client, as_json=as_json)


@clients_app.command("subscriptions")
def subscriptions(as_json: AsJson = False, http: _Http = "", bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the subscriptions.

    Examples:

    * `headrace clients subscriptions`
    """
    from headrace.cli.clients.run import show_subscriptions

    show_subscriptions(bootstrap, http, as_json=as_json)


@clients_app.command("subscribe")
def subscribe(
    name: _Name,
    metrics: Annotated[
        str, typer.Option(metavar="PREFIX,…", help="The metrics, by the beginning of their names; * for all.")
    ] = "*",
    interval_ms: Annotated[
        int | None,
        typer.Option(min=100, max=3_600_000, help="How often clients push. Default: 300000", show_default=False),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATTERN",
            help="Only clients with this, such as client_id=shop-.*; may be given again, then all must match.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Ask clients for their metrics, or change what they are asked for.

    Java's clients from 3.7 and librdkafka from 2.5 on push them, and notice within five minutes that they are asked
    to, or when they connect. `kafka-client-metrics.sh` changes the same subscriptions.

    Examples:

    * `headrace clients subscribe everything --interval-ms 30000`
    * `headrace clients subscribe shop --metrics org.apache.kafka.producer --match 'client_id=shop-.*'`
    """
    from headrace.cli.clients.run import change_subscription

    change_subscription(bootstrap, name, metrics, interval_ms, match or [])


@clients_app.command("unsubscribe")
def unsubscribe(name: _Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Delete a subscription.

    Examples:

    * `headrace clients unsubscribe everything`
    """
    from headrace.cli.clients.run import delete_subscription

    delete_subscription(bootstrap, name)
