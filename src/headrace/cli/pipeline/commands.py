"""`headrace pipeline`: run pipelines on Spark from files."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import AsJson
from headrace.cli.pipeline.archive_commands import archive, replay

pipeline_app = typer.Typer(
    help="Clean, join, aggregate and archive topics with Spark, from a file.",
    epilog="Start with: headrace pipeline init p.toml --topic orders - then: headrace pipeline preview p.toml",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
dlq_app = typer.Typer(help="Look at dead letters, and send them back.", no_args_is_help=True)
pipeline_app.add_typer(dlq_app, name="dlq")

SpecFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file of the pipeline, such as revenue.toml.", show_default=False)
]
PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="The pipeline's name, or its file.", show_default=False)
]
LettersArgument = Annotated[
    str,
    typer.Argument(metavar="FILE|TOPIC", help="The pipeline's file, or a dead-letter topic.", show_default=False),
]
PipelineBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="The broker, instead of the one that the file names; else HEADRACE_BOOTSTRAP, or localhost:9092.",
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
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=1, max=10_000, help="How many messages to look at.")
    ] = 200,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Write a pipeline to start from: every section is there, explained, and it is valid as it is.

    The schema is that of the newest messages of the topic, if they are JSON. Without a broker or without messages it is
    an example.

    Example: `headrace pipeline init revenue.toml --topic orders`
    """
    from headrace.cli.pipeline.init import init_file

    init_file(file, topic, bootstrap, sample, force=force)


@pipeline_app.command()
def preview(
    file: SpecFileArgument,
    messages: Annotated[
        int, typer.Option("--messages", "-n", metavar="N", min=1, max=10_000, help="How many messages to take.")
    ] = 100,
    rows: Annotated[int, typer.Option("--rows", min=1, max=1000, help="How many rows of each sink to show.")] = 10,
    as_json: AsJson = False,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Show what a pipeline makes of the newest messages of its topics. Nothing is written anywhere.

    The steps run here, over these messages as a table: windows and totals are of these messages alone. Most of the time
    goes to the start of Spark, a few seconds.

    Example: `headrace pipeline preview revenue.toml --messages 500`
    """
    from headrace.cli.pipeline.preview import preview_file

    preview_file(file, bootstrap, messages, rows, as_json=as_json)


@pipeline_app.command()
def validate(
    file: SpecFileArgument,
    as_json: AsJson = False,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Check a pipeline before it runs: keys, SQL, columns and types. Needs no broker.

    A mistake is reported with its line: `revenue.toml:8: there is no column amuont; the columns are amount, at, user`.

    Example: `headrace pipeline validate revenue.toml`
    """
    from headrace.cli.pipeline.run import validate_file

    validate_file(file, bootstrap, as_json=as_json)


@pipeline_app.command()
def explain(file: SpecFileArgument, bootstrap: PipelineBootstrap = None) -> None:
    """Show what Spark will do for each sink: its plan, as Spark tells it.

    Example: `headrace pipeline explain revenue.toml`
    """
    from headrace.cli.pipeline.run import explain_file

    explain_file(file, bootstrap)


@pipeline_app.command()
def run(
    file: SpecFileArgument,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now is done.")] = False,
    master: Master = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    bootstrap: PipelineBootstrap = None,
    plain: Annotated[bool, typer.Option("--plain", help="A line for each batch instead of a live table.")] = False,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run a pipeline here and show how it is doing, until Ctrl-C, which stops it after its batch.

    It goes on where it was stopped. The live table shows rows and rows per second in and out, the time of the last
    batch, how many records are left to read (lag), the size of the state, and records that did not fit.

    Examples:

    * `headrace pipeline run revenue.toml`
    * `headrace pipeline run revenue.toml --once`
    * `headrace pipeline run revenue.toml --master spark://spark.example.org:7077`
    """
    from headrace.cli.pipeline.run import run_file

    run_file(file, bootstrap, master, state_dir, once=once, plain=plain, supervised=supervised)


@pipeline_app.command()
def start(
    file: SpecFileArgument,
    master: Master = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Run a pipeline in the background. It survives this terminal, and is started again when it fails.

    Example: `headrace pipeline start revenue.toml` - then `headrace pipeline status`
    """
    from headrace.cli.pipeline.background import start_file

    start_file(file, bootstrap, master, state_dir)


@pipeline_app.command()
def stop(pipeline: PipelineArgument, state_dir: StateDir = DEFAULT_STATE_DIR) -> None:
    """Stop a pipeline that runs in the background, after its batch.

    What it left open when it was killed is ended, too: it would hold back those who read its topics.

    Example: `headrace pipeline stop revenue`
    """
    from headrace.cli.pipeline.background import stop_pipeline

    stop_pipeline(pipeline, state_dir)


@pipeline_app.command()
def status(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="A pipeline's name or file; all without it.")
    ] = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    as_json: AsJson = False,
) -> None:
    """Show the pipelines of a state folder: running or not, how often restarted, the last batch, the last error.

    Example: `headrace pipeline status`
    """
    from headrace.cli.pipeline.background import show_status

    show_status(pipeline, state_dir, as_json=as_json)


@pipeline_app.command()
def lag(file: SpecFileArgument, as_json: AsJson = False, bootstrap: PipelineBootstrap = None) -> None:
    """Show how far a pipeline is in each partition, and how much is left to read.

    A pipeline commits its offsets to the group `pipeline-<name>`, so every tool for groups shows the same.

    Example: `headrace pipeline lag revenue.toml`
    """
    from headrace.cli.pipeline.positions import show_lag

    show_lag(file, bootstrap, as_json=as_json)


@pipeline_app.command()
def reset(
    file: SpecFileArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, a time (2026-01-31T12:00, '2h ago'), or offsets: orders:0=17,orders:1=4.",
            show_default=False,
        ),
    ],
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this it only shows what it would.")
    ] = False,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    as_json: AsJson = False,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Let a pipeline begin somewhere else. Shows what would change; add `--execute` to change it.

    The checkpoint is renamed and stays as a backup; the pipeline's state (windows, counts, keys) goes with it.
    What it has written stays, so rows that are read again are written again. The pipeline must not be running.

    Examples:

    * `headrace pipeline reset revenue.toml --to earliest`
    * `headrace pipeline reset revenue.toml --to '2h ago' --execute`
    * `headrace pipeline reset revenue.toml --to orders:0=17,orders:1=4 --execute`
    """
    from headrace.cli.pipeline.positions import reset_file

    reset_file(file, bootstrap, to, state_dir, execute=execute, as_json=as_json)


@dlq_app.command("list")
def dlq_list(
    pipeline: LettersArgument,
    samples: Annotated[int, typer.Option("--samples", "-n", min=0, help="Letters to show of each reason.")] = 1,
    as_json: AsJson = False,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Count the dead letters by reason, with samples and where they came from.

    Examples:

    * `headrace pipeline dlq list revenue.toml --samples 3`
    * `headrace pipeline dlq list orders.dlq`
    """
    from headrace.cli.pipeline.dead_letters import list_letters

    list_letters(pipeline, bootstrap, samples, as_json=as_json)


@dlq_app.command("replay")
def dlq_replay(
    pipeline: LettersArgument,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Only letters with this in their reason.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be sent back.")] = False,
    as_json: AsJson = False,
    bootstrap: PipelineBootstrap = None,
) -> None:
    """Send dead letters back to the topics they came from, each once, after the reason is fixed.

    A letter that was sent back stays in the dead-letter topic and is not sent again. One that still does not fit comes
    back as a new letter.

    Examples:

    * `headrace pipeline dlq replay revenue.toml --dry-run`
    * `headrace pipeline dlq replay revenue.toml --reason 'amount is not'`
    """
    from headrace.cli.pipeline.dead_letters import replay_letters

    replay_letters(pipeline, bootstrap, reason, dry_run=dry_run, as_json=as_json)


pipeline_app.command()(archive)
pipeline_app.command()(replay)
