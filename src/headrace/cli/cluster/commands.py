"""`headrace cluster`: run a cluster for development, show its state, and move partitions."""

from typing import Annotated, Literal

import typer

from headrace.cli.cluster_dev.commands import dev_app
from headrace.cli.errors import BadArgument
from headrace.cli.names import complete_brokers, complete_topics
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Unset, parse_changes

_BrokerId = Annotated[
    int,
    typer.Argument(
        metavar="ID", min=0, help="The broker's number.", show_default=False, autocompletion=complete_brokers
    ),
]
_NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")]
_Throttle = Annotated[
    str | None,
    typer.Option(metavar="BYTES", help="At most so much per second and broker, as in 10M, until it is done."),
]

_OneBroker = Annotated[
    int | None,
    typer.Option(
        "--broker",
        metavar="ID",
        min=0,
        help="This broker; without it all.",
        show_default=False,
        autocompletion=complete_brokers,
    ),
]

cluster_app = typer.Typer(
    help="Run a local cluster, watch one, change settings, drain brokers and move partitions.", no_args_is_help=True
)
cluster_app.add_typer(dev_app, name="dev")


@cluster_app.command("status")
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat it until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: how often, in seconds.")] = 2.0,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the brokers of a cluster and its problems.

    For each broker: whether it is there, how many partitions it leads and hosts, how much it stores. Then partitions
    without a leader, that refuse acks=all, that lack replicas, and those that are being moved.

    Exit code 0: all is well. 1: everything can be read and written, but a broker or a replica is missing. 3: some
    partitions cannot be read or written. Any Kafka cluster can be looked at, with less to see.

    Examples:

    * `headrace cluster status`
    * `headrace cluster status --watch --bootstrap broker1:9092,broker2:9092`
    * `until headrace cluster status > /dev/null; do sleep 1; done` (before the next broker of a rolling restart)
    """
    from headrace.cli.cluster.status import show_status, watch_status

    if watch:
        watch_status(bootstrap, every)
    elif code := show_status(bootstrap, as_json=as_json):
        raise typer.Exit(code)


@cluster_app.command("drain")
def drain(
    broker_id: _BrokerId,
    fewer_replicas: Annotated[
        bool,
        typer.Option("--fewer-replicas", help="Partitions that every other broker has already get a replica less."),
    ] = False,
    no_wait: _NoWait = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take all partitions from a broker, so that it can be taken out of the cluster.

    The cluster moves its replicas to other brokers, a few partitions at a time, and gives it no new ones. A broker that
    is dead and will not come back is drained in the same way; it is forgotten once nothing is left on it.

    Where that cannot succeed, nothing is changed and the reason is printed: no other broker is left for a replica, or
    no live broker has all of a partition.

    Examples:

    * `headrace cluster drain 3`
    * `headrace cluster drain 3 --fewer-replicas` (three replicas on three brokers become two on two)
    * `headrace cluster throttle 20M && headrace cluster drain 3 && headrace cluster throttle off`
    """
    from headrace.cli.cluster.drain import drain as run

    run(bootstrap, broker_id, fewer_replicas=fewer_replicas, wait=not no_wait)


@cluster_app.command("undrain")
def undrain(broker_id: _BrokerId, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Let a broker that was drained, or is being drained, have partitions again.

    Example: `headrace cluster undrain 3`
    """
    from headrace.cli.cluster.drain import undrain as run

    run(bootstrap, broker_id)


@cluster_app.command("rebalance")
def rebalance(
    move: Annotated[bool, typer.Option("--move", help="Also move replicas, so that all brokers have alike.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --move: carry out the plan that is shown.")] = False,
    throttle: _Throttle = None,
    no_wait: _NoWait = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Give leadership back to the first replica of each partition, which spreads it evenly. No data is moved.

    With `--move`, replicas are moved too: a broker that was added gets its share, from those that have more than
    theirs, and each queue goes to the broker that leads its state, where its messages cost least. That plan is shown
    first, and carried out with `--yes`.

    Examples:

    * `headrace cluster rebalance`
    * `headrace cluster rebalance --move` (what would be moved)
    * `headrace cluster rebalance --move --yes --throttle 20M`
    """
    from headrace.cli.cluster.moves import elect
    from headrace.cli.cluster.moves import move as run
    from headrace.cli.cluster.plans import parse_size

    if not move and (yes or throttle is not None):
        raise BadArgument("--yes and --throttle belong to --move: without it no data is moved")
    if move:
        run(bootstrap, yes=yes, throttle_bytes=None if throttle is None else parse_size(throttle), wait=not no_wait)
    else:
        elect(bootstrap)


@cluster_app.command("reassign")
def reassign(
    partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:P,P]…",
            help="Whole topics, or some partitions.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All topics, those that the cluster keeps for itself too.")
    ] = False,
    replicas: Annotated[
        str | None, typer.Option(metavar="ID,ID", help="The brokers to be on; the first is to lead.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="So many replicas, where the cluster has room for them.")
    ] = None,
    throttle: _Throttle = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and do nothing.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End those in progress; partitions stay where they were.")
    ] = False,
    no_wait: _NoWait = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Put partitions on other brokers, or on more or fewer of them.

    Readers and writers do not notice: new replicas copy what there is, and take the place of the old ones when they are
    in sync. For a whole topic the order of `--replicas` is turned from partition to partition, so that all lead alike.

    Examples:

    * `headrace cluster reassign orders --replication-factor 3`
    * `headrace cluster reassign orders:0,4 --replicas 2,3,4 --throttle 10M`
    * `headrace cluster reassign orders --replicas 1,2,3 --dry-run`
    * `headrace cluster reassign orders --cancel`
    * `headrace cluster reassign --all --replication-factor 3`
    """
    from headrace.cli.cluster.moves import cancel as run_cancel
    from headrace.cli.cluster.moves import reassign as run
    from headrace.cli.cluster.plans import parse_replicas, parse_size

    if sum((replicas is not None, replication_factor is not None, cancel)) != 1:
        raise BadArgument("give one of --replicas 1,2,3, --replication-factor N and --cancel")
    if bool(partitions) == every:
        raise BadArgument("name topics, or give --all")
    targets = None if every else partitions
    if cancel:
        run_cancel(bootstrap, targets)
        return
    run(
        bootstrap,
        targets,
        replicas=None if replicas is None else parse_replicas(replicas),
        factor=replication_factor,
        throttle_bytes=None if throttle is None else parse_size(throttle),
        dry_run=dry_run,
        wait=not no_wait,
    )


@cluster_app.command("upgrade")
def upgrade(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would do, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Turn on what a new version of Headrace brings, once every broker runs it.

    After an upgrade of the program, brokers go on as before, so that the upgrade can be taken back: they write nothing
    that the version before cannot read. This command ends that. It raises the cluster's feature level to the highest
    that every broker knows; a single broker is a cluster of one. It cannot be undone.

    Examples:

    * `headrace cluster upgrade --dry-run`
    * `headrace cluster upgrade --bootstrap broker1:9092`
    """
    from headrace.cli.cluster.upgrade import upgrade as run

    run(bootstrap, dry_run=dry_run, yes=yes)


@cluster_app.command("throttle")
def throttle(
    rate: Annotated[str, typer.Argument(metavar="BYTES|off", help="Per second and broker: 10M.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Limit how fast brokers copy what a reassignment or a drain moves. Replicas that are in sync are never slowed.

    Examples: `headrace cluster throttle 20M`, `headrace cluster throttle off`
    """
    from headrace.cli.cluster.moves import throttle as run
    from headrace.cli.cluster.plans import parse_size

    run(bootstrap, 0 if rate == "off" else parse_size(rate))


@cluster_app.command("settings")
def settings(
    broker_id: _OneBroker = None,
    all_settings: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the settings of brokers, where each value comes from, and whether a change needs a restart.

    FROM says `start` for a flag, the environment or the config file, `broker` and `all brokers` for what was changed
    while it ran. A single broker is a cluster of one.

    Examples:

    * `headrace cluster settings`
    * `headrace cluster settings --broker 2 --all`
    """
    from headrace.cli.settings import show_brokers

    show_brokers(bootstrap, broker_id, all_settings=all_settings, as_json=as_json)


@cluster_app.command("alter")
def alter(
    broker_id: _OneBroker = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be given again.")
    ] = None,
    unset: Unset = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change settings of all brokers, or of one, while they run. The changes survive restarts.

    Only what takes effect without a restart can be changed so; `headrace cluster settings --all` says which that are.

    Examples:

    * `headrace cluster alter --set log.retention.ms=86400000`
    * `headrace cluster alter --broker 2 --set log.cleaner.threads=2`
    * `headrace cluster alter --unset log.retention.ms`
    """
    from headrace.cli.settings import alter_brokers

    alter_brokers(bootstrap, broker_id, parse_changes(changes or [], unset or []))


@cluster_app.command("log-level")
def log_level(
    level: Annotated[
        Literal["debug", "info", "warn", "error"],
        typer.Argument(metavar="debug|info|warn|error", help="The new log level.", show_default=False),
    ],
    logger: Annotated[
        str, typer.Option(metavar="NAME", help="One part of the broker, such as headrace.cluster; root is all of it.")
    ] = "root",
    broker_id: _OneBroker = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let brokers log more, or less, until their next restart. The setting `log.level` is for good.

    Examples:

    * `headrace cluster log-level debug --logger headrace.cluster --broker 0`
    * `headrace cluster log-level info`
    """
    from headrace.cli.settings import set_log_level

    set_log_level(bootstrap, broker_id, logger, level)
