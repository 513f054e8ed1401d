"""What a follower tells its leader: changes only, and again what the leader has answered with an error."""

from uuid import UUID

from headrace.protocol.fetch_request import WantedByReplica
from headrace.replication.fetch_session import FollowerSession

TOPIC = UUID(int=1)
KEY = (TOPIC, 0)
OTHER = (TOPIC, 1)


def wanted(partition: int, offset: int = 0) -> WantedByReplica:
    return WantedByReplica(partition, 0, offset, -1, 0, 1000)


def begun() -> FollowerSession:
    session = FollowerSession()
    session.tell({KEY: wanted(0), OTHER: wanted(1)}, ())
    session.begun(7)
    return session


def test_what_the_leader_knows_is_not_said_again() -> None:
    session = begun()
    ask = session.tell({KEY: wanted(0), OTHER: wanted(1, offset=5)}, ())
    assert (ask.wanted, ask.forgotten) == ({TOPIC: [wanted(1, offset=5)]}, {})


def test_what_is_gone_is_forgotten_once() -> None:
    session = begun()
    assert session.tell({}, [KEY]).forgotten == {TOPIC: [0]}
    assert not session.tell({}, [KEY]).is_news


def test_what_is_gone_and_wanted_again_at_the_same_offset_is_said_again() -> None:
    """It was left out for a moment because of an error, and that moment was over before anything was sent."""
    session = begun()
    ask = session.tell({KEY: wanted(0)}, [KEY])
    assert (ask.wanted, ask.forgotten) == ({TOPIC: [wanted(0)]}, {})
    assert session.requested[KEY] == wanted(0)
