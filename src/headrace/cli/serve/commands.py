"""`headrace serve`: run a broker until SIGTERM or Ctrl-C."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import parse_pairs

if TYPE_CHECKING:
    from headrace.app.broker import BrokerApp


def serve(
    data_dir: Annotated[
        Path | None, typer.Option(help="Where everything is stored. Default: ./headrace-data", show_default=False)
    ] = None,
    kafka_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where Kafka clients connect. Default: 127.0.0.1:9092", show_default=False
        ),
    ] = None,
    http_listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where queues (the SQS API) and the dashboard are served over HTTP. Default: 127.0.0.1:9324",
            show_default=False,
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="The address advertised to clients. Needed behind NAT, a proxy or a container's port mapping only.",
        ),
    ] = None,
    etcd: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,…", help="The etcd that makes brokers a cluster. Without it this broker is alone."
        ),
    ] = None,
    broker_id: Annotated[
        int | None,
        typer.Option(min=0, help="The number of this broker, unique in its cluster. Default: 0", show_default=False),
    ] = None,
    rack: Annotated[
        str | None, typer.Option(help="The machine, rack or zone it is in; replicas are spread over them.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Run so many brokers, one for each core: a broker uses one. Needs --etcd.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="text|json", help="How the log is written. json: an object on each line.", show_default=False
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen beyond this machine without authentication."),
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in TOML.", envvar="HEADRACE_CONFIG")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting; may be given again.")
    ] = None,
) -> None:
    """Run a broker.

    Prints one line when it is ready and logs to stderr. SIGTERM or Ctrl-C stops it with everything flushed, SIGHUP
    restarts it with the settings as they are then.

    A setting is taken from the first of: a flag, the environment (`HEADRACE_LOG_RETENTION_MS` for
    `log.retention.ms`), the file given with `--config`, its default. `docs/settings.md` lists all of them.

    Examples:

    * `headrace serve`
    * `headrace serve --data-dir /var/lib/headrace --kafka-listen 0.0.0.0:9092 --insecure`
    * `headrace serve --set num.partitions=12 --set log.retention.ms=3600000`
    * `headrace serve --log-format json 2> broker.log`
    * `headrace serve --etcd etcd1:2379,etcd2:2379,etcd3:2379 --broker-id 1 --rack a` (one broker of a cluster)
    * `headrace serve --etcd etcd1:2379 --broker-id 10 --workers 4` (brokers 10 to 13, ports 9092 to 9095)
    """
    import os
    import sys

    from headrace.config.load import load_settings

    flags = parse_pairs(settings or [], "--set")
    given = {
        "data.dir": data_dir,
        "kafka.listen": kafka_listen,
        "http.listen": http_listen,
        "advertise": advertise,
        "etcd.endpoints": etcd,
        "broker.id": broker_id,
        "broker.rack": rack,
        "log.format": log_format,
        "insecure": "true" if insecure else None,
    }
    flags |= {name: str(value) for name, value in given.items() if value is not None}
    loaded = load_settings(flags=flags, environment=os.environ, config_file=config)
    if workers is not None:
        from headrace.cli.serve.workers import run_workers

        raise typer.Exit(run_workers(workers, loaded, flags, config))

    # Loaded last, so that a mistake in the settings is answered at once.
    from functools import partial

    import uvloop

    from headrace.app.advertised_host import with_advertised_host
    from headrace.app.broker import serve as run
    from headrace.observe.logs import configure
    from headrace.version import version_text

    configure(loaded.log_level, log_format=loaded.log_format, broker_id=loaded.broker_id)
    # Before the event loop runs, which it would hold up: in a checkout git is asked.
    build = version_text()
    if uvloop.run(run(with_advertised_host(loaded), partial(_announce, build=build))):
        # The same process, with new settings: its supervisor sees no exit.
        os.execv(sys.executable, [sys.executable, "-m", "headrace", *sys.argv[1:]])


def _announce(app: "BrokerApp", *, build: str) -> None:
    import logging

    from headrace.config.address import EVERY_ADDRESS, parse_address

    where, listens = str(app.kafka_endpoint), ""
    if app.kafka_endpoint.host in EVERY_ADDRESS:
        where, listens = f"localhost:{app.kafka_endpoint.port}", "on every address, "
        if app.settings.etcd_endpoints and app.settings.advertise:
            listens += f"to others {parse_address(app.settings.advertise, default_port=app.kafka_endpoint.port)}, "
    if app.http_url:
        listens += f"queues on {app.http_url}, dashboard on {app.http_url}/ui, "
    data_dir = Path(app.settings.data_dir).resolve()
    who = f"broker {app.settings.broker_id} of " if app.settings.etcd_endpoints else ""
    logging.getLogger("headrace").info("this is %s", build)
    print(f"Headrace is ready on {where} ({listens}data in {data_dir}, {who}cluster {app.cluster_id})", flush=True)
