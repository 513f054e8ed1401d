"""The state of share groups goes from one version of Headrace to the next and, before the upgrade is final, back."""

from pathlib import Path

import pytest

from headrace.testing.process import BrokerProcess
from tests.earlier_versions import DATA, environment_of

from . import raw_client
from .batches import Record, batch
from .raw_client import Connection, Error
from .share_members import ACCEPT, RELEASE, Member, acquired, configure, part, until_acquired

pytestmark = pytest.mark.slow

EARLIER = sorted(path.name for path in DATA.iterdir() if path.is_dir())


@pytest.mark.parametrize("version", EARLIER)
def test_what_was_accepted_and_delivered_is_known_to_both_versions(version: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", env=environment_of(version, tmp_path))
    try:
        broker.start()
        raw_client.create_topic(broker.bootstrap, "t", 1, {})
        with Connection(broker.bootstrap) as connection:
            topic_id = raw_client.wait_topic(connection, "t", 1)
            raw_client.until_coordinated(connection, name="g")
            assert configure(connection, "g", "share.auto.offset.reset", "earliest") is Error.none
            records = batch([Record(b"x") for _ in range(6)])
            assert raw_client.produce(connection, "t", records).error_code is Error.none
        old = Member(broker.bootstrap, "g", topic_id)
        assert acquired(until_acquired(old)) == [(0, 5, 1)]
        assert part(old.acknowledge((0, 1, ACCEPT), (2, 3, RELEASE))).error_code is Error.none
        old.close()
        broker.kill()

        broker.env = {}
        broker.start()
        new = Member(broker.bootstrap, "g", topic_id)
        assert acquired(until_acquired(new)) == [(2, 3, 2), (4, 5, 1)]
        assert part(new.acknowledge((2, 2, ACCEPT), (4, 4, RELEASE))).error_code is Error.none
        with Connection(broker.bootstrap) as connection:
            assert configure(connection, "g", "share.delivery.count.limit", "3") is Error.invalid_config
        new.close()
        broker.kill()

        broker.env = environment_of(version, tmp_path)
        broker.start()
        back = Member(broker.bootstrap, "g", topic_id)
        assert [(first, last) for first, last, _ in acquired(until_acquired(back))] == [(3, 3), (4, 5)]
        back.close()
    finally:
        broker.close()
