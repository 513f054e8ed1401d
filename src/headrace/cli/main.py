"""The command `headrace`. Each command has a module of its own; this one puts them together and words the errors.

Nothing heavy is imported here or at the top of a command's module: `headrace serve` must be ready within a second, and
the client library, tables and progress bars are loaded by the commands that use them.

Exit codes: 0 done; 1 the command failed (the broker refused, a check found something); 2 it could not start as asked.
"""

import gc
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from headrace.cli.errors import CommandFailed
from headrace.cli.formats import offer_both
from headrace.cli.profile import ProfileOption, offer_profile
from headrace.model.errors import HeadraceError
from headrace.model.extras import missing_extra

_COMMANDS = {
    "serve": "serve.commands:serve",
    "cluster": "cluster.commands:cluster_app",
    "topic": "topic.commands:topic_app",
    "produce": "produce.commands:produce",
    "consume": "consume.commands:consume",
    "group": "group.commands:group_app",
    "queue": "queue.commands:queue_app",
    "schedule": "schedule.commands:schedule_app",
    "schema": "schema.commands:schema_app",
    "txn": "txn.commands:txn_app",
    "log": "log.commands:log_app",
    "secure": "secure.commands:secure",
    "cert": "cert.commands:cert_app",
    "user": "user.commands:user_app",
    "acl": "acl.commands:acl_app",
    "quota": "quota.commands:quota_app",
    "link": "link.commands:link_app",
    "audit": "audit.commands:audit_app",
    "clients": "clients.commands:clients_app",
    "work": "work.commands:work",
    "pipeline": "pipeline.commands:pipeline_app",
    "demo": "demo.commands:demo",
    "bench": "bench.commands:bench",
    "health": "health.commands:health",
    "top": "top.commands:top",
    "probe": "probe.commands:probe",
    "doctor": "doctor.commands:doctor",
}
"""Where each command is, or each group of them, below `headrace.cli`, in the order of the help."""
_GC_THRESHOLD = 50_000
"""Modules are objects by the hundred thousand that all stay: looking for garbage among them is a fifth of a start."""


def command_line(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """The command line with these commands: a hundred with all of their options take as long as a broker's start."""
    app = typer.Typer(
        name="headrace",
        help="A durable message queue that any Kafka client can use.",
        epilog="Start with: headrace serve - then, in another terminal: echo hello | headrace produce greetings",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in names:
        module, _, attribute = _COMMANDS[name].partition(":")
        found = getattr(import_module(f"headrace.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    app.callback()(_options)
    offer_both(app)
    offer_profile(app)
    return app


def __getattr__(name: str) -> typer.Typer:
    """`app` is the whole command line."""
    if name != "app":
        raise AttributeError(name)
    app = globals()["app"] = command_line()
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from headrace.version import version_text

        print(version_text())
        raise typer.Exit


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
    """Run the command line as a process of its own."""
    gc.set_threshold(_GC_THRESHOLD)
    # kio loads hypothesis where it is installed, to offer strategies for tests: that takes a quarter of a second, and
    # leaves a folder of its own behind.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    try:
        return run()
    finally:
        # The process ends: Python need not look for garbage once more.
        gc.freeze()


def run() -> int:
    """Run the command line; every error that is not a defect of Headrace becomes one sentence on stderr."""
    try:
        command_line(_named())(prog_name="headrace")
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


def _named() -> Iterable[str]:
    """The command that is asked for; all of them for a list of commands, a misspelt one, or a shell that completes."""
    first = sys.argv[1:2]
    return first if first and first[0] in _COMMANDS and "_HEADRACE_COMPLETE" not in os.environ else _COMMANDS


def _complain(error: HeadraceError, code: int) -> int:
    print(f"headrace: {error}", file=sys.stderr)
    return code
