"""`headrace link`: mirror topics of another cluster here, and take them over."""

from typing import Annotated, Any

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, bootstrap_option
from headrace.model.links import SCHEMAS_TOPIC_DEFAULT, SYNC_CHOICES

link_app = typer.Typer(
    help="Geo-replication: mirror topics of another cluster here, see how far behind they are, take them over.",
    epilog="A link copies topics of a source cluster (Headrace, or Apache Kafka 3.1 or newer) into read-only mirror "
    "topics of this cluster, with the same offsets. When the source is lost: `headrace link failover TOPIC`; when it "
    "is back: `headrace link reverse`.",
    no_args_is_help=True,
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the link.", show_default=False)]
_Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC…", help="Mirror topics, by their names here.", show_default=False)
]
_SomeTopics = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC…]", help="Only these mirror topics, by their names here.", show_default=False),
]
_Bootstrap = Annotated[str, bootstrap_option("The cluster that has the mirrors, which must be Headrace; any broker.")]
_Http = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="URL",
        envvar="HEADRACE_HTTP",
        help="Where a broker serves HTTP; by default the broker is asked for it.",
        show_default=False,
    ),
]
_Here = Annotated[
    str,
    typer.Option(
        "--here",
        metavar="HOST:PORT",
        envvar="HEADRACE_BOOTSTRAP",
        help="The cluster that has the mirrors, which must be Headrace; any broker.",
    ),
]
_Sync = Annotated[
    str,
    typer.Option(
        "--sync",
        metavar="KIND,…",
        help=f"What else is copied: {', '.join(SYNC_CHOICES)}; none for none of them. With acls, users who may change "
        "ACLs at the source give permissions here; with users, those who may change users there log in here.",
        show_default=False,
    ),
]
_SchemasTopic = Annotated[
    str,
    typer.Option(
        "--schemas-topic",
        metavar="TOPIC",
        help="The topic of the source's registry, for --sync schemas.",
        show_default="_schemas",
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen, and what may be missing.")]
_TIMEOUT_S = 60.0


@link_app.command("create")
def create(
    name: _Name,
    source: Annotated[
        str,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT,…",
            help="Brokers of the source cluster, as the brokers here reach them.",
            show_default=False,
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            metavar="REGEX",
            help="Which topics are mirrored: a regular expression for the whole name; may be given again.",
            show_default="all but internal ones",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="REGEX", help="Which of them are not; may be given again."),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Put before the names of mirror topics: eu.orders.")
    ] = "",
    max_bytes_per_second: Annotated[
        int | None,
        typer.Option(
            "--max-bytes-per-second",
            metavar="BYTES",
            min=1,
            help="What each broker copies at most.",
            show_default="no limit",
        ),
    ] = None,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="The link's user at the source.")] = "",
    mechanism: Annotated[
        str,
        typer.Option(
            "--mechanism", metavar="NAME", help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.", show_default="SCRAM-SHA-512"
        ),
    ] = "",
    password_env: Annotated[
        str,
        typer.Option(
            "--password-env",
            metavar="NAME",
            help="The environment variable of the brokers here with its password: HEADRACE_LINK_PASSWORD_…",
        ),
    ] = "",
    password_file: Annotated[
        str,
        typer.Option(
            "--password-file", metavar="NAME", help="The file in link.files.dir of the brokers here with its password."
        ),
    ] = "",
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt; on with --ca.")] = False,
    ca: Annotated[
        str,
        typer.Option("--ca", metavar="NAME", help="The CA of the source: a PEM file in link.files.dir of the brokers."),
    ] = "",
    groups: Annotated[
        bool, typer.Option("--groups/--no-groups", help="Copy the committed offsets of consumer groups.")
    ] = True,
    settings: Annotated[
        bool, typer.Option("--settings/--no-settings", help="Follow changed settings of the topics.")
    ] = True,
    sync: _Sync = "",
    schemas_topic: _SchemasTopic = "",
    here: _Here = DEFAULT_BOOTSTRAP,
    http: _Http = "",
) -> None:
    """Mirror topics of another cluster here.

    The mirrors are read-only and have the partitions, settings and offsets of the source. The brokers here connect to
    the source; nothing is installed there. A password is never stored in the cluster: name the environment variable
    or the file that every broker here has it in. Files are in the folder of the setting `link.files.dir`.

    Examples:

    * `headrace link create eu --bootstrap eu-1:9092,eu-2:9092 --topics 'orders.*'`
    * `headrace link create eu --bootstrap eu-1:9092 --prefix eu.`
    * `headrace link create eu --bootstrap eu-1:9093 --ca eu-ca.pem --user link --password-file eu-password`
    """
    from headrace.cli.link.run import create_link

    wanted = {
        "name": name,
        "bootstrap": _listed(source),
        "topics": topics or [".*"],
        "exclude": exclude or [],
        "prefix": prefix,
        "max_bytes_per_second": max_bytes_per_second,
        "user": user,
        "mechanism": mechanism or ("SCRAM-SHA-512" if user else ""),
        "password_env": password_env,
        "password_file": password_file,
        "tls": tls or bool(ca),
        "ca_file": ca,
        "groups": groups,
        "settings": settings,
        "sync": _choices(sync),
        "schemas_topic": schemas_topic or SCHEMAS_TOPIC_DEFAULT,
    }
    create_link(here, http, wanted)


@link_app.command("alter")
def alter(
    name: _Name,
    source: Annotated[
        str,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT,…",
            help="Other brokers of the same source cluster, as the brokers here reach them.",
            show_default=False,
        ),
    ] = "",
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", metavar="REGEX", help="Which topics are mirrored from now on; may be given again."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="REGEX", help="Which of them are not; may be given again. '' for none."),
    ] = None,
    max_bytes_per_second: Annotated[
        str,
        typer.Option(
            "--max-bytes-per-second",
            metavar="BYTES",
            help="What each broker copies at most; none for no limit.",
            show_default=False,
        ),
    ] = "",
    groups: Annotated[
        bool | None, typer.Option("--groups/--no-groups", help="Copy the committed offsets of consumer groups.")
    ] = None,
    settings: Annotated[
        bool | None, typer.Option("--settings/--no-settings", help="Follow changed settings of the topics.")
    ] = None,
    sync: _Sync = "",
    schemas_topic: _SchemasTopic = "",
    here: _Here = DEFAULT_BOOTSTRAP,
    http: _Http = "",
) -> None:
    """Change a link. What is not given stays as it is; topics that are mirrored already go on.

    Examples:

    * `headrace link alter eu --topics 'orders.*' --topics 'payments.*'`
    * `headrace link alter eu --max-bytes-per-second 5000000`
    * `headrace link alter eu --bootstrap eu-4:9092`
    * `headrace link alter eu --sync acls,quotas`
    """
    from headrace.cli.link.run import alter_link

    wanted: dict[str, Any] = {
        "bootstrap": _listed(source) or None,
        "topics": topics or None,
        "exclude": None if exclude is None else [each for each in exclude if each],
        "groups": groups,
        "settings": settings,
        "sync": _choices(sync) if sync else None,
        "schemas_topic": schemas_topic or None,
    }
    changes = {key: value for key, value in wanted.items() if value is not None}
    if max_bytes_per_second:
        changes["max_bytes_per_second"] = _limit(max_bytes_per_second)
    alter_link(here, http, name, changes)


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:20]) < 2**63:
        raise typer.BadParameter("a number of bytes from 1 on, or none", param_hint="--max-bytes-per-second")
    return int(text)


def _choices(text: str) -> list[str]:
    choices = [] if text == "none" else _listed(text)
    if unknown := next((each for each in choices if each not in SYNC_CHOICES), ""):
        raise typer.BadParameter(f"{unknown} is none of {', '.join(SYNC_CHOICES)}", param_hint="--sync")
    return list(dict.fromkeys(choices))


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


@link_app.command("list")
def list_links(as_json: AsJson = False, http: _Http = "", bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """List the links: their sources, and how many topics they mirror.

    Example: `headrace link list`
    """
    from headrace.cli.link.run import show_links

    show_links(bootstrap, http, as_json=as_json)


@link_app.command("describe")
def describe(
    name: _Name,
    partitions: Annotated[bool, typer.Option("--partitions", help="Show each partition.")] = False,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a link and its mirror topics: state, messages and seconds behind the source, what was lost, the last error.

    Example: `headrace link describe eu --partitions`
    """
    from headrace.cli.link.run import show_link

    show_link(bootstrap, http, name, partitions=partitions, as_json=as_json)


@link_app.command("pause")
def pause(name: _Name, topics: _SomeTopics = None, http: _Http = "", bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Stop copying for now, over the whole link or into some of its topics. They stay read-only and fall behind.

    Examples:

    * `headrace link pause eu`
    * `headrace link pause eu orders`
    """
    from headrace.cli.link.run import pause_link

    pause_link(bootstrap, http, name, topics or [], is_paused=True)


@link_app.command("resume")
def resume(
    name: _Name, topics: _SomeTopics = None, http: _Http = "", bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Copy again from where the mirrors are: what was paused, the link or topics of it.

    Example: `headrace link resume eu`
    """
    from headrace.cli.link.run import pause_link

    pause_link(bootstrap, http, name, topics or [], is_paused=False)


@link_app.command("delete")
def delete(name: _Name, http: _Http = "", bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Delete a link whose topics have been promoted, failed over or deleted.

    Example: `headrace link delete eu`
    """
    from headrace.cli.link.run import delete_link

    delete_link(bootstrap, http, name)


@link_app.command("promote")
def promote(
    topics: _Topics,
    dry_run: _DryRun = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, max=3600, help="How long to wait for the rest.")
    ] = _TIMEOUT_S,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make mirror topics writable here once they have everything of the source. For a planned move.

    Stop the producers of the source first: a topic that is written to is never caught up for good. The topic is an
    ordinary one afterwards; its groups go on from the offsets that were copied.

    Examples:

    * `headrace link promote orders`
    * `headrace link promote orders payments --dry-run`
    """
    from headrace.cli.link.run import take_over

    take_over(bootstrap, http, topics, how="promote", dry_run=dry_run, timeout_s=timeout_s, as_json=as_json)


@link_app.command("failover")
def failover(
    topics: _Topics,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make mirror topics writable here now, whatever the source has that was not copied. For a lost source.

    Says what may be missing, in messages and seconds. The source is not asked and not changed: stop the producers
    there if it still runs.

    Examples:

    * `headrace link failover orders --dry-run`
    * `headrace link failover orders payments`
    """
    from headrace.cli.link.run import take_over

    take_over(bootstrap, http, topics, how="failover", dry_run=dry_run, timeout_s=_TIMEOUT_S, as_json=as_json)


@link_app.command("reverse")
def reverse(
    name: _Name,
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC…", help="Topics here that become mirrors.", show_default=False),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many messages would be set aside; changes nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before topics become read-only.")] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=1, max=3600, help="How long to wait until all is set aside."),
    ] = _TIMEOUT_S,
    as_json: AsJson = False,
    http: _Http = "",
    bootstrap: _Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Fail back: make topics of a former source mirrors of those that were taken over from it. For a source that is
    back.

    Run it on the former source, with a link from there to the cluster that took over. The topic becomes read-only.
    Messages that were never copied are set aside in TOPIC.divergent, with headers that say where they were; then the
    log is truncated to what both clusters have, and the rest is copied. Afterwards `headrace link promote TOPIC` moves
    the producers back.

    Examples:

    * `headrace link reverse us orders --dry-run`
    * `headrace link reverse us orders payments --yes`
    """
    from headrace.cli.link.run import reverse_topics

    reverse_topics(bootstrap, http, name, topics, dry_run=dry_run, yes=yes, timeout_s=timeout_s, as_json=as_json)
