"""The code of the README and of the guides does what a reader expects of it: it runs as it is written.

`tests/snippets.py` says how blocks are found and run, and `tests/not_run.py` lists those that cannot run here.
"""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace.testing import etcd
from headrace.testing.process import BrokerProcess
from tests.snippets import PAGES, ROOT, Runner, blocks_of, runner
from tests.unit.pipelines.tables.rest_catalog import rest_catalog

from .quick import SETTINGS

# Many programs are started, one after the other: on a busy machine each takes seconds.
pytestmark = pytest.mark.timeout(600)

_ELSEWHERE = ("spark", "cluster", "text")
BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.language not in _ELSEWHERE and not block.reason]


@contextmanager
def reader(page: str, folder: Path) -> Iterator[Runner]:
    """A runner with all that a reader of the page has: a broker, and other servers that the page speaks of."""
    with ExitStack() as stack:
        key = {"HEADRACE_ENCRYPTION_MASTER_KEY": b64encode(bytes(32)).decode()} if page == "docs/encryption.md" else {}
        settings: dict[str, object] = dict(SETTINGS)
        admin: dict[str, str] = {}
        if page == "docs/security.md":
            settings |= {"listeners": "sasl_plain://127.0.0.1:0", "authorization.enable": True}
            (folder / "alone").mkdir()
            key["HEADRACE_INITIAL_ADMIN"] = "admin:the password"
            admin = {"HEADRACE_USER": "admin", "HEADRACE_PASSWORD": "the password"}
        broker = stack.enter_context(BrokerProcess(folder / "headrace-data", settings=settings, env=key))
        port = etcd.free_port()
        places = {
            "localhost:9092": broker.bootstrap,
            "broker.example.org:9092": broker.bootstrap,
            "HOST:PORT": broker.bootstrap,
            "localhost:9324": broker.http_url.removeprefix("http://"),
            "localhost:8000": f"127.0.0.1:{port}",
            "--kafka-listen :9092": "--kafka-listen 127.0.0.1:0",
            '":9092"': '"127.0.0.1:0"',
            "/etc/headrace.toml": str(folder / "etc-headrace.toml"),
            "--rack a --data-dir /var/lib/headrace": f"--rack a --data-dir {folder / 'in-a-cluster'}",
            "/var/lib/headrace": str(folder / "alone"),
            "secure --host queue.example.org": f"secure --host queue.example.org --data-dir {folder}",
            "/etc/headrace/security": str(folder / "security"),
            "/data/lake": str(folder / "lake"),
            # Others may run this page on the same machine.
            "127.0.0.1:9325": "127.0.0.1:0",
        }
        environment = {
            **admin,
            "HEADRACE_BOOTSTRAP": broker.bootstrap,
            "PYTHONPATH": str(ROOT / "src"),
            "UVICORN_PORT": str(port),
        }
        if page == "docs/tables.md":
            places["http://localhost:8181"] = stack.enter_context(rest_catalog(folder))
        if page == "docs/operations.md" and etcd.is_installed():
            store = stack.enter_context(etcd.EtcdProcess())
            places["etcd1:2379,etcd2:2379,etcd3:2379"] = store.endpoint
            environment["ETCDCTL_ENDPOINTS"] = store.endpoint
        yield stack.enter_context(runner(folder, places, environment))


@pytest.mark.parametrize("page", {block.page: None for block in BLOCKS})
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    blocks = [block for block in BLOCKS if block.page == page]
    with reader(page, tmp_path) as run:
        for block in blocks:
            if block.file:
                run.write_file(block)
        for block in blocks:
            run.run(block)
