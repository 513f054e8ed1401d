"""`headrace schema`: the schema registry of the brokers."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

schema_app = typer.Typer(
    help="Register, check, compare and delete schemas of messages (Avro, JSON Schema, Protobuf).", no_args_is_help=True
)

_Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The subject, such as orders-value.", show_default=False)
]
_File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto; - is standard input.", show_default=False),
]
_Type = Annotated[
    str,
    typer.Option("--type", metavar="TYPE", help="AVRO, JSON or PROTOBUF; without it by the name of the file."),
]
_References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one refers to by that name; may be given again.",
    ),
]
_Version = Annotated[str, typer.Option("--version", "-v", metavar="N", help="A version, or latest.")]
_Http = Annotated[
    str,
    typer.Option(
        "--http", metavar="URL", envvar="HEADRACE_HTTP", help="The broker's HTTP address; without it brokers are asked."
    ),
]


@schema_app.command("register")
def register(
    subject: _Subject,
    file: _File,
    type_: _Type = "",
    reference: _References = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Store the text in its normal form.")] = False,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Register a schema as the next version of a subject. The same schema again is the version that it is already.

    Exit code 1 if it is incompatible with earlier versions; the changes are listed.

    Examples:

    * `headrace schema register orders-value order.avsc`
    * `headrace schema register orders-value order.proto --reference item.proto=items:1`
    """
    from headrace.cli.schema.run import register as work

    work(bootstrap, http, subject, file, type_, reference or [], normalizes=normalize, as_json=as_json)


@schema_app.command("check")
def check(
    subject: _Subject,
    file: _File,
    type_: _Type = "",
    reference: _References = None,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Check whether a schema could be registered, before it is deployed. Nothing is registered.

    Exit codes: 0 it could; 1 it breaks readers or writers of earlier versions, or is no valid schema.

    Example: `headrace schema check orders-value order.avsc`
    """
    from headrace.cli.schema.run import check as work

    raise typer.Exit(work(bootstrap, http, subject, file, type_, reference or [], as_json=as_json))


@schema_app.command("list")
def list_subjects(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Only subjects that begin so.")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted subjects, too.")] = False,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List the subjects with their latest version.

    Example: `headrace schema list orders`
    """
    from headrace.cli.schema.run import show_subjects

    show_subjects(bootstrap, http, prefix, deleted=deleted, as_json=as_json)


@schema_app.command("show")
def show(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT|ID", help="A subject, or the id of a schema.", show_default=False)
    ],
    version: _Version = "latest",
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a version of a subject, or the schema with an id.

    Examples:

    * `headrace schema show orders-value`
    * `headrace schema show 17`
    """
    from headrace.cli.schema.run import show_schema

    show_schema(bootstrap, http, subject, version, as_json=as_json)


@schema_app.command("diff")
def diff(
    subject: _Subject,
    first: Annotated[str, typer.Argument(metavar="VERSION", help="The older version.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="[VERSION]", help="The newer version.")] = "latest",
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show what has changed between two versions of a subject, line by line.

    Example: `headrace schema diff orders-value 1`
    """
    from headrace.cli.schema.run import show_diff

    show_diff(bootstrap, http, subject, first, second)


@schema_app.command("delete")
def delete(
    subject: _Subject,
    version: Annotated[str, typer.Option("--version", "-v", metavar="N", help="Only this version.")] = "",
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good: messages that were written with it cannot be read any more.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete a subject or one of its versions. Schemas can still be read by their id, until they are deleted for good.

    Example: `headrace schema delete orders-value --version 2`
    """
    from headrace.cli.schema.run import delete as work

    work(bootstrap, http, subject, version, permanent=permanent, yes=yes)


@schema_app.command("config")
def config(
    subject: Annotated[str, typer.Argument(metavar="[SUBJECT]", help="Without it, the one for all subjects.")] = "",
    level: Annotated[
        str,
        typer.Option("--set", metavar="LEVEL", help="NONE, BACKWARD, FORWARD or FULL, or one of them _TRANSITIVE."),
    ] = "",
    unset: Annotated[bool, typer.Option("--unset", help="Back to the level for all subjects.")] = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show or set which changes of schemas are allowed.

    Examples:

    * `headrace schema config`
    * `headrace schema config orders-value --set FULL`
    """
    from headrace.cli.schema.run import change_config

    change_config(bootstrap, http, subject, level, unset=unset)


@schema_app.command("mode")
def mode(
    subject: Annotated[str, typer.Argument(metavar="[SUBJECT]", help="Without it, the one for all subjects.")] = "",
    mode_: Annotated[
        str, typer.Option("--set", metavar="MODE", help="READWRITE, READONLY, IMPORT (ids are given) or FORWARD.")
    ] = "",
    unset: Annotated[bool, typer.Option("--unset", help="Back to the mode for all subjects.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Import into subjects that have versions.")] = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show or set whether schemas can be registered.

    Example: `headrace schema mode orders-value --set READONLY`
    """
    from headrace.cli.schema.run import change_mode

    change_mode(bootstrap, http, subject, mode_, unset=unset, force=force)


_Records = Annotated[
    Path, typer.Argument(metavar="FILE", help="A record in each line: key, tab, value. - is the terminal or a pipe.")
]


@schema_app.command("export")
def export(file: _Records = Path("-"), http: _Http = "", bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Write all schemas with their ids, settings and modes to a file, as the records of the topic `_schemas`.

    Example: `headrace schema export schemas.txt`
    """
    from headrace.cli.schema.run import export as work

    work(bootstrap, http, file)


@schema_app.command("import")
def import_(
    file: _Records,
    force: Annotated[bool, typer.Option("--force", help="Also into subjects that have versions already.")] = False,
    http: _Http = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take over the schemas of another registry with their ids and versions. It can be repeated.

    The file has the records of the topic `_schemas`, of Headrace or of Confluent's registry.

    Examples:

    * `headrace schema export --bootstrap old:9092 | headrace schema import -`
    * `kcat -b old:9092 -t _schemas -C -e -Z -K '\\t' | headrace schema import -`
    """
    from headrace.cli.schema.run import import_records as work

    work(bootstrap, http, file, force=force)
