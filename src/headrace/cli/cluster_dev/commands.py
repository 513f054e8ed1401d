"""`headrace cluster dev`: run a cluster on this machine, end one of its brokers, and bring it back."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import parse_pairs

DEFAULT_FOLDER = Path("headrace-cluster")
MOST_BROKERS = 32

dev_app = typer.Typer()

_Who = Annotated[str, typer.Argument(metavar="ID|etcd", help="The broker's number, or etcd.", show_default=False)]
_Folder = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="The folder that the cluster was started with. Default: ./headrace-cluster",
        show_default=False,
    ),
]


@dev_app.callback(invoke_without_command=True)
def dev(
    context: typer.Context,
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=MOST_BROKERS, help="How many brokers.")] = 3,
    data_dir: Annotated[
        Path, typer.Option(help="Where data and logs of all of them are stored, and found again next time.")
    ] = DEFAULT_FOLDER,
    base_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Broker 1 listens here, the others on the next ones; 0: free ones.")
    ] = 9092,
    restart: Annotated[bool, typer.Option("--restart", help="Start again what dies.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of all brokers; may be given again."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also what is only of interest in trouble.")] = False,
) -> None:
    """Run a whole cluster on this machine: a real etcd and brokers, each a process of its own.

    Says where to connect once all of it is ready. Ctrl-C stops the brokers, each handing over what it leads, and then
    etcd. Started again on the same folder, everything is there. Kill a broker with `headrace cluster dev kill 3`, see
    what happens, and bring it back with `headrace cluster dev start 3`.

    It needs the program `etcd` (Debian: `apt-get install etcd-server`) and `pip install 'headrace[cluster]'`.

    Examples:

    * `headrace cluster dev`
    * `headrace cluster dev --brokers 5 --restart --base-port 19092 --data-dir /tmp/try`
    * `headrace cluster dev --set num.partitions=12 --set broker.session.timeout.ms=3000`
    """
    if context.invoked_subcommand is not None:
        return
    from headrace.cli.cluster_dev.run import DevCluster, check_ports, run_dev_cluster
    from headrace.config.load import load_settings

    pairs = parse_pairs(settings or [], "--set")
    load_settings(flags=pairs)
    check_ports(base_port, brokers)
    run_dev_cluster(DevCluster(data_dir.absolute(), brokers, base_port, pairs, restart, verbose))


@dev_app.command("start")
def start(context: typer.Context, who: _Who, data_dir: _Folder = None) -> None:
    """Bring back a broker that has ended, or add one, in the `headrace cluster dev` that runs on this folder.

    Waits until it is ready. A number that the cluster does not have yet becomes a new broker, without any partitions.

    Examples:

    * `headrace cluster dev start 2`
    * `headrace cluster dev start 4` (one more, beside brokers 1 to 3)
    * `headrace cluster dev start etcd --data-dir /tmp/try`
    """
    from headrace.cli.cluster_dev.control import ask_running

    print(ask_running(_folder(context, data_dir), "start", who))


@dev_app.command("kill")
def kill(context: typer.Context, who: _Who, data_dir: _Folder = None) -> None:
    """End a broker, or etcd, at once and without a warning, as a power failure would.

    Examples:

    * `headrace cluster dev kill 3`
    * `headrace cluster dev kill etcd`
    """
    from headrace.cli.cluster_dev.control import ask_running

    print(ask_running(_folder(context, data_dir), "kill", who))


def _folder(context: typer.Context, data_dir: Path | None) -> Path:
    """The folder that is given after the command, or before it, or none."""
    before: Path = context.parent.params["data_dir"] if context.parent is not None else DEFAULT_FOLDER
    return (data_dir or before).absolute()
