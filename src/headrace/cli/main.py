"""The command `headrace`. Each command has a module of its own; this one puts them together and words the errors.

Nothing heavy is imported here or at the top of a command's module: `headrace serve` must be ready within a second, and
the client library, tables and progress bars are loaded by the commands that use them.

Exit codes: 0 done; 1 the command failed (the broker refused, a check found something); 2 it could not start as asked.
"""

import sys
from typing import Annotated

import typer

from headrace.cli.acl.commands import acl_app
from headrace.cli.audit.commands import audit_app
from headrace.cli.bench.commands import bench
from headrace.cli.cert.commands import cert_app
from headrace.cli.clients.commands import clients_app
from headrace.cli.cluster.commands import cluster_app
from headrace.cli.consume.commands import consume
from headrace.cli.demo.commands import demo
from headrace.cli.doctor.commands import doctor
from headrace.cli.errors import CommandFailed
from headrace.cli.formats import offer_both
from headrace.cli.group.commands import group_app
from headrace.cli.health.commands import health
from headrace.cli.log.commands import log_app
from headrace.cli.pipeline.archive_commands import archive, replay
from headrace.cli.pipeline.commands import pipeline_app
from headrace.cli.probe.commands import probe
from headrace.cli.produce.commands import produce
from headrace.cli.profile import ProfileOption, offer_profile
from headrace.cli.queue.commands import queue_app
from headrace.cli.quota.commands import quota_app
from headrace.cli.schema.commands import schema_app
from headrace.cli.secure.commands import secure
from headrace.cli.serve.commands import serve
from headrace.cli.top.commands import top
from headrace.cli.topic.commands import topic_app
from headrace.cli.txn.commands import txn_app
from headrace.cli.user.commands import user_app
from headrace.model.errors import HeadraceError
from headrace.model.extras import missing_extra

app = typer.Typer(
    name="headrace",
    help="A durable message queue that any Kafka client can use.",
    epilog="Start with: headrace serve - then, in another terminal: echo hello | headrace produce greetings",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.add_typer(cluster_app, name="cluster")
app.add_typer(topic_app, name="topic")
app.command()(produce)
app.command()(consume)
app.add_typer(group_app, name="group")
app.add_typer(queue_app, name="queue")
app.add_typer(schema_app, name="schema")
app.add_typer(txn_app, name="txn")
app.add_typer(log_app, name="log")
app.command()(secure)
app.add_typer(cert_app, name="cert")
app.add_typer(user_app, name="user")
app.add_typer(acl_app, name="acl")
app.add_typer(quota_app, name="quota")
app.add_typer(audit_app, name="audit")
app.add_typer(clients_app, name="clients")
app.add_typer(pipeline_app, name="pipeline")
pipeline_app.command()(archive)
pipeline_app.command()(replay)
app.command()(demo)
app.command()(bench)
app.command()(health)
app.command()(top)
app.command()(probe)
app.command()(doctor)
offer_both(app)
offer_profile(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from headrace.version import version_text

        print(version_text())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and the commit, and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
    profile: ProfileOption = None,
) -> None:
    pass


def main() -> int:
    """Run the command line; every error that is not a defect of Headrace becomes one sentence on stderr."""
    # kio loads hypothesis where it is installed, to offer strategies for tests: that takes a quarter of a second, and
    # leaves a folder of its own behind.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    try:
        app(prog_name="headrace")
    except CommandFailed as error:
        return _complain(error, 1)
    except HeadraceError as error:
        return _complain(error, 2)
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        return _complain(missing, 2)
    except KeyboardInterrupt:
        return 130
    return 0


def _complain(error: HeadraceError, code: int) -> int:
    print(f"headrace: {error}", file=sys.stderr)
    return code
