"""`headrace cluster`: run one for development, look at one, and move partitions about in it."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import parse_pairs

cluster_app = typer.Typer(
    help="Run a local cluster, watch one, drain brokers and move partitions.", no_args_is_help=True
)


@cluster_app.command("dev")
def dev(
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=32, help="How many.")] = 3,
    data_dir: Annotated[
        Path, typer.Option(help="Where data and logs of all of them are kept, and found again next time.")
    ] = Path("headrace-cluster"),
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
    etcd. Started again on the same folder, everything is there. Kill a broker with `kill -9` and see what happens.

    It needs the program `etcd` (Debian: `apt-get install etcd-server`) and `pip install 'headrace[cluster]'`.

    Examples:

    * `headrace cluster dev`
    * `headrace cluster dev --brokers 5 --restart --base-port 19092 --data-dir /tmp/try`
    * `headrace cluster dev --set num.partitions=12 --set broker.session.timeout.ms=3000`
    """
    from headrace.cli.cluster_dev import DevCluster, check_ports, run_dev_cluster
    from headrace.cli.serve import check_cluster_extra
    from headrace.config.load import load_settings

    pairs = parse_pairs(settings or [], "--set")
    load_settings(flags=pairs)
    check_cluster_extra()
    check_ports(base_port, brokers)
    run_dev_cluster(DevCluster(data_dir.absolute(), brokers, base_port, pairs, restart, verbose))
