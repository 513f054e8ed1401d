"""`headrace pipeline`: run pipelines on Spark from files."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import AsJson

pipeline_app = typer.Typer(
    help="Clean, join, aggregate and archive topics with Spark, from a file.",
    epilog="Start with: headrace pipeline init revenue.toml - then: headrace pipeline run revenue.toml --once",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

SpecFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file of the pipeline, such as revenue.toml.", show_default=False)
]
PipelineBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="HEADRACE_BOOTSTRAP",
        help="The broker, instead of the one that the file names.",
        show_default=False,
    ),
]
StateDir = Annotated[
    Path,
    typer.Option(
        "--state-dir", metavar="FOLDER", envvar="HEADRACE_PIPELINES", help="Where pipelines keep checkpoints and logs."
    ),
]
DEFAULT_STATE_DIR = Path("headrace-pipelines")
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="The Spark master, instead of the one that the file names."),
]


@pipeline_app.command()
def init(
    file: SpecFileArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic to read.")] = "orders",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a pipeline to start from: every section is there, explained, and it is valid as it is.

    Example: `headrace pipeline init revenue.toml --topic orders`
    """
    from headrace.cli.pipelining import write_example

    write_example(file, topic, force=force)


@pipeline_app.command()
def validate(
    file: SpecFileArgument,
    as_json: AsJson = False,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Check a pipeline before it runs: keys, SQL, columns and types. Needs no broker.

    A mistake is told with its line: `revenue.toml:8: there is no column amuont; the columns are amount, at, user`.

    Example: `headrace pipeline validate revenue.toml`
    """
    from headrace.cli.pipelining import validate_file

    validate_file(file, bootstrap, as_json=as_json)


@pipeline_app.command()
def explain(file: SpecFileArgument, bootstrap: PipelineBootstrap = None) -> None:
    """Show what Spark will do for each sink: its plan, as Spark tells it.

    Example: `headrace pipeline explain revenue.toml`
    """
    from headrace.cli.pipelining import explain_file

    explain_file(file, bootstrap)
