"""`headrace secure`: certificates, an administrator, TLS and SCRAM, ACLs and an access key in one command."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import AsJson


def secure(
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The data directory of the broker, on its own machine.")
    ] = Path("headrace-data"),
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A name or address by which clients reach the broker, for its certificate; may be given again. "
            "The listener advertises the first.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where clients connect over TLS, with a user and a password. Default: :9093, or as before.",
            show_default=False,
        ),
    ] = None,
    admin: Annotated[str, typer.Option(metavar="NAME", help="The administrator to create.")] = "admin",
    security_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Certificates and the brokers' password; in a cluster, copy it from the first broker to the others. "
            "Default: security in the data directory.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=3,
            help="For a cluster, each on every broker before the next: 1 adds the listener, 2 lets brokers use it "
            "among themselves, 3 enforces ACLs and closes the plain listener to other machines.",
        ),
    ] = None,
    restart: Annotated[bool, typer.Option(help="Restart the running broker: a second without it.")] = True,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="Do steps 2 and 3 without asking the other brokers whether they have done the step before. Those that "
            "have not, and those that are down and have not, are cut off from this one.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Secure a broker: clients then need TLS, a user with a password, and permission.

    It makes a CA and a certificate, an administrator with a password and an access key for queues, opens a listener
    with TLS and SCRAM, turns on ACLs, restarts the broker, and prints what clients need. Clients on other machines need
    `--host`: without it, the certificate is for this machine's name and for localhost only. The plain listener stays
    open to this machine, where ACLs apply as well; queues over HTTP move to https on their port.

    Run again, it changes nothing that is done already. In a cluster, brokers are secured one after the other in three
    steps, while clients go on: docs/security.md goes through it. A step that would cut off a broker, because it is down
    or behind, is refused.

    Examples:

    * `headrace secure --host queue.example.org`
    * `headrace secure --dry-run`
    * `headrace secure --data-dir /var/lib/headrace --step 1 --security-dir /etc/headrace/security` (in a cluster)
    """
    from headrace.cli.secure.run import run

    run(
        data_dir,
        hosts=hosts or [],
        listen=listen,
        admin=admin,
        security_dir=security_dir or data_dir / "security",
        step=step,
        restarts=restart,
        is_checked=not unchecked,
        is_dry=dry_run,
        as_json=as_json,
    )
