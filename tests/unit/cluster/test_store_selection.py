import asyncio
from pathlib import Path

import pytest

from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store_selection import open_store
from headrace.config.broker import broker_settings
from headrace.model.errors import StartupError
from headrace.runtime.clock import SystemClock
from headrace.testing.etcd import EtcdProcess, is_installed

from .store_contract import put


def opened(directory: Path, **texts: str) -> str:
    """The kind of the store that settings lead to, after it was used."""

    async def main() -> str:
        given = {name.replace("_", "."): value for name, value in texts.items()}
        store = await open_store(broker_settings(given), directory, SystemClock())
        try:
            await put(store, "/a")
            return type(store).__name__
        finally:
            await store.close()

    return asyncio.run(main())


def test_without_etcd_it_is_a_file(tmp_path: Path) -> None:
    assert opened(tmp_path) == SqliteStore.__name__
    assert (tmp_path / "metadata.sqlite").exists()


@pytest.mark.skipif(not is_installed(), reason="etcd is not installed")
def test_with_etcd_endpoints_it_is_etcd(tmp_path: Path) -> None:
    with EtcdProcess() as etcd:
        assert opened(tmp_path, etcd_endpoints=etcd.endpoint) == "EtcdStore"
        assert opened(tmp_path, etcd_endpoints=f"http://{etcd.endpoint}/") == "EtcdStore"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"etcd_endpoints": "a:b"}, "has no valid port"),
        ({"etcd_endpoints": ":2379"}, "is not an address"),
        ({"etcd_endpoints": "a:1", "etcd_cert_file": "x"}, "belong together"),
        ({"etcd_endpoints": "http://a:1", "etcd_ca_file": "x"}, "write https://"),
        ({"etcd_endpoints": "https://a:1,b:1"}, "write it on all of them"),
        ({"etcd_endpoints": "a:1", "etcd_ca_file": "/nowhere/ca.pem"}, "cannot be read: No such file"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(StartupError, match=sentence):
        opened(tmp_path, **settings)
