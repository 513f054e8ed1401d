"""`headrace doctor`: why a client cannot connect, in words."""

from typing import Annotated

import typer

from headrace.cli.names import complete_groups, complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def doctor(
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Check the permissions on this topic, too.",
            autocompletion=complete_topics,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Check the permissions on this group, too.",
            autocompletion=complete_groups,
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")] = 3.0,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Find out why a client cannot connect, by doing what clients do, step by step, from this machine.

    Resolve the name, connect, shake hands with TLS, speak Kafka, log in, ask which addresses the brokers advertise, and
    connect to those too: a client uses the advertised address for everything but its first request. Also looks at
    permissions, disk space and clocks. User, password and certificates are those of the environment or of `--profile`,
    as for other commands.

    Exit code 0 if a client would be fine, 1 if not.

    Examples:

    * `headrace doctor`
    * `headrace doctor --bootstrap broker.example.org:9092`
    * `headrace doctor --profile prod --topic orders --group billing`
    """
    from headrace.cli.doctor.findings import CheckStatus
    from headrace.cli.doctor.run import diagnose
    from headrace.cli.output import print_json

    marks = {
        CheckStatus.OK: ("ok", "green"),
        CheckStatus.WARNING: ("warning", "yellow"),
        CheckStatus.PROBLEM: ("problem", "red"),
    }
    findings = []
    for finding in diagnose(bootstrap, timeout, topic=topic, group=group):
        findings.append(finding)
        if not as_json:
            word, colour = marks[finding.status]
            typer.echo(f"{typer.style(f'{word:>8}', fg=colour, bold=True)}  {finding.what}")
            if finding.advice:
                typer.echo(f"{'':>8}  -> {finding.advice}")
    if as_json:
        print_json([{"status": each.status.value, "what": each.what, "advice": each.advice} for each in findings])
    if any(each.status is CheckStatus.PROBLEM for each in findings):
        raise typer.Exit(1)
    if not as_json:
        typer.echo(f"\nA Kafka client on this machine can use {bootstrap}.")
