"""`headrace cert`: certificates for development, and what a certificate says."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import AsJson

cert_app = typer.Typer(help="Make certificates for development, and look at any certificate.", no_args_is_help=True)


@cert_app.command("dev")
def dev(
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="The folder for the files.")] = Path(
        "headrace-certs"
    ),
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A name or address of a broker, besides localhost and this machine's name; may be given again.",
        ),
    ] = None,
    clients: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="Make a certificate for this client; may be given again."),
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace the certificates that exist, but the CA.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a CA, a certificate for brokers, and certificates for clients, and print where to set them.

    Certificates are valid for 825 days, the CA for ten years. The command may be run again: it reuses the CA and leaves
    certificates that exist as they are. Anyone who can read `ca-key.pem` can make certificates that your brokers trust.

    Examples:

    * `headrace cert dev`
    * `headrace cert dev --host broker1.example.org --client alice --client billing`
    * `headrace cert dev --renew` (a running broker uses the new certificate within seconds)
    """
    from headrace.cli.cert.run import make

    make(folder, hosts=hosts or [], clients=clients or [], renews=renew, as_json=as_json)


@cert_app.command("show")
def show(
    where: Annotated[str, typer.Argument(metavar="FILE|HOST:PORT", help="A file in PEM, or a port that speaks TLS.")],
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check that it is trusted by these authorities.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a port.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Show a certificate: the subject, the names it is valid for, the issuer and the expiry.

    Exit code 1 if it has expired, or if it is not trusted by `--ca`. For a port, that includes the host's name.

    Examples:

    * `headrace cert show headrace-certs/broker.pem`
    * `headrace cert show localhost:9093 --ca headrace-certs/ca.pem`
    """
    from headrace.cli.cert.run import present

    present(where, ca_file=ca, timeout_s=timeout, as_json=as_json)
