"""How a store finds its etcd, and is let in."""

import asyncio
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.store import Put, StoreUnavailable
from headrace.model.errors import StartupError
from headrace.testing.etcd import EtcdProcess, free_port

from .cutting import Cutting
from .etcd_stores import NEEDS_ETCD, EtcdAccess, EtcdStore, Follower, new_prefix, opened, put_for_certain, run
from .store_contract import put

pytestmark = NEEDS_ETCD


def test_a_member_that_is_not_there_is_passed_over(shared: EtcdProcess) -> None:
    async def scenario() -> None:
        dead = f"127.0.0.1:{free_port()}"
        async with opened(dead, shared.endpoint, prefix=new_prefix()) as store:
            await put(store, "/a")
            assert list((await store.snapshot()).items) == ["/a"]

    run(scenario)


def test_an_etcd_with_another_past_is_refused(own: EtcdProcess) -> None:
    async def scenario() -> None:
        async with Cutting(own.port) as wire, opened(wire.endpoint) as store:
            await put(store, "/a")
            with EtcdProcess(args=["--initial-cluster-token=another"]) as other:
                wire._to = other.port
                wire.cut()
                for _ in range(2):
                    with pytest.raises(StoreUnavailable):
                        await store.commit([], [Put("/b", b"")])
                with pytest.raises(StoreUnavailable, match="not the one that this broker started with"):
                    await store.snapshot()

    run(scenario)


def test_without_etcd_the_start_fails_with_a_sentence() -> None:
    async def scenario() -> None:
        access = EtcdAccess((f"127.0.0.1:{free_port()}",))
        with pytest.raises(
            StartupError, match=r"^etcd at 127.0.0.1:\d+ cannot be reached: Connection refused: is it running"
        ):
            await EtcdStore.open(access, "/headrace", start_timeout_s=0.5)

    run(scenario)


def test_user_and_password(own: EtcdProcess, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with opened(own.endpoint, user="headrace", password="secret") as store:
            await put(store, "/before-etcd-asked")
        assert "etcd.user has no effect" in caplog.text
        for command in (
            "user add root:r",
            "user grant-role root root",
            "role add headrace",
            "role grant-permission headrace readwrite --prefix=true /headrace/",
            "user add headrace:secret",
            "user grant-role headrace headrace",
            "auth enable",
        ):
            own.ctl(*command.split())
        attempts: list[tuple[dict[str, Any], str]] = [
            ({}, "set etcd.user and etcd.password"),
            ({"user": "headrace", "password": "guess"}, "rejects the user headrace: check etcd.user and etcd.password"),
        ]
        for wrong, sentence in attempts:
            with pytest.raises(StartupError, match=sentence):
                async with opened(own.endpoint, **wrong):
                    pass
        with pytest.raises(StartupError, match="read and write under"):
            async with opened(own.endpoint, user="headrace", password="secret", prefix="/other"):
                pass
        async with opened(own.endpoint, user="headrace", password="secret") as store:
            lease = await store.grant_lease(60_000)
            follower = Follower(store, await put(store, "/a"))
            await put(store, "/b")
            await follower.until_key("/b")
            # Every token ends when etcd starts anew, and also when its users change.
            await asyncio.to_thread(own.restart)
            await put_for_certain(store, "/c")
            await follower.until_key("/c")
            await asyncio.to_thread(own.ctl, "--user=root:r", "user", "add", "another:x")
            await put(store, "/d")
            await follower.until_key("/d")
            assert await store.keep_alive(lease)
            await store.revoke_lease(lease)

    caplog.set_level(logging.WARNING)
    run(scenario)


def make_certificates(directory: Path) -> None:
    """ca.pem, and host.pem with host.key signed by it for 127.0.0.1."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True, timeout=60)

    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test ca", "-days", "2")
    openssl("req", *key, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=host")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "host.csr", "-out", "host.pem", *signed)


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "host.pem", "host.key"))
    args = [
        f"--trusted-ca-file={ca}",
        "--client-cert-auth",
        f"--cert-file={certificate}",
        f"--key-file={key}",
    ]

    async def scenario(process: EtcdProcess) -> None:
        pem: dict[str, Any] = {"ca": ca.read_bytes(), "certificate": certificate.read_bytes(), "key": key.read_bytes()}
        async with opened(process.endpoint, is_secure=True, **pem) as store:
            await put(store, "/a")
            assert list((await store.snapshot()).items) == ["/a"]
        for access in (
            EtcdAccess((process.endpoint,), connect_timeout_s=5),
            EtcdAccess((process.endpoint,), is_secure=True, ca=ca.read_bytes(), connect_timeout_s=5),
        ):
            with pytest.raises(StartupError, match="cannot be reached"):
                await EtcdStore.open(access, "/headrace", start_timeout_s=0.5)

    with EtcdProcess(args=args, scheme="https") as process:
        run(lambda: scenario(process))
