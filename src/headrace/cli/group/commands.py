"""`headrace group`: list, describe, change and delete consumer, share and streams groups, and move their offsets."""

from typing import Annotated

import typer

from headrace.cli.errors import BadArgument
from headrace.cli.names import complete_groups, complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Unset, parse_changes

group_app = typer.Typer(
    help="List, describe, change, rewind and delete consumer, share and streams groups.", no_args_is_help=True
)

_Group = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="The name of the group.", show_default=False, autocompletion=complete_groups),
]


@group_app.command("list")
def list_groups(as_json: AsJson = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the groups with their state.

    Example: `headrace group list`
    """
    from headrace.cli.group.run import list_all
    from headrace.cli.output import print_json, table

    groups = list_all(bootstrap)
    if as_json:
        print_json(groups)
    elif groups:
        rows = [(each["group"], each["state"], each["type"]) for each in groups]
        table(None, [("GROUP", "left"), ("STATE", "left"), ("PROTOCOL", "left")], rows)
    else:
        print("There are no groups, or none that you may see; a consumer that joins or commits makes one")


@group_app.command("describe")
def describe(
    group: _Group,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the partitions.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a group: how far it is in each partition, how much is left to read, who reads it, and its own settings.

    Examples:

    * `headrace group describe billing`
    * `headrace group describe billing --members`
    """
    from headrace.cli.group.run import describe_group, print_group, print_members
    from headrace.cli.output import print_json
    from headrace.cli.settings import group_settings

    description = {**describe_group(bootstrap, group), "settings": group_settings(bootstrap, group)}
    if as_json:
        print_json(description)
    elif members:
        print_members(description)
    else:
        print_group(description)


@group_app.command("alter")
def alter(
    group: _Group,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the group; may be given again."),
    ] = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the settings of a group, which take the place of the broker's `group.*` for it. Takes effect at once.

    The group need not exist yet: where a share group begins can be set before its first member joins. Names that
    begin with `consumer.`, `share.` and `streams.` are for groups of that kind; `docs/settings.md` lists all.

    Examples:

    * `headrace group alter billing --set consumer.session.timeout.ms=60000`
    * `headrace group alter packing --set share.auto.offset.reset=earliest`
    * `headrace group alter billing --unset consumer.session.timeout.ms`
    """
    from headrace.cli.settings import alter_group

    alter_group(bootstrap, group, parse_changes(settings or [], unset or []))


@group_app.command("reset-offsets")
def reset_offsets(
    group: _Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,…]",
            help="A topic, or some partitions of it; may be given again.",
            autocompletion=complete_topics,
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first message there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: only new messages.")] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="To a time: 2026-01-31T12:00 or '5m ago'."),
    ] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Forward by N messages, or back by -N.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this it only shows what it would.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move the committed offsets of a group. Shows what would change; add `--execute` to change it.

    The group must have no members: stop its consumers first. Without `--topic`, all topics that it has committed for
    are moved. An offset outside of what the partition holds becomes its first or its end. A share group goes on from
    the offset, with every message from there on not yet delivered.

    Examples:

    * `headrace group reset-offsets billing --to-earliest`
    * `headrace group reset-offsets billing --topic orders --to-datetime '2h ago' --execute`
    * `headrace group reset-offsets billing --topic orders:0,3 --shift-by -10 --execute`
    """
    from headrace.cli.group.run import print_moves, reset
    from headrace.cli.output import print_json
    from headrace.cli.times import parse_time
    from headrace.groups.offset_reset import ResetTarget

    chosen = [to_earliest, to_latest, to_datetime is not None, to_offset is not None, shift_by is not None]
    if sum(chosen) != 1:
        raise BadArgument("give one of --to-earliest, --to-latest, --to-datetime, --to-offset and --shift-by")
    time_ms = None if to_datetime is None else parse_time(to_datetime)
    target = ResetTarget(to_earliest, to_latest, time_ms, to_offset, shift_by)
    moves = reset(bootstrap, group, topic or [], target, execute=execute)
    if as_json:
        print_json([each.as_dict() for each in moves])
    else:
        print_moves(group, moves, executed=execute)


@group_app.command("delete")
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP…", help="The names of the groups.", show_default=False, autocompletion=complete_groups
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before offsets are deleted.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups with their committed offsets. They must have no members; the topics stay as they are.

    Example: `headrace group delete billing --yes`
    """
    import sys

    from headrace.cli.group.run import delete_groups

    if not yes:
        if not sys.stdin.isatty():
            raise BadArgument("this deletes committed offsets and there is no terminal to confirm on: add --yes")
        typer.confirm(f"Delete {', '.join(groups)} with all committed offsets?", abort=True)
    delete_groups(bootstrap, groups)
