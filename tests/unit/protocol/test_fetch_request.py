"""What is written by hand is what kio reads."""

from uuid import UUID

from headrace.protocol.codec import read_request, read_request_header
from headrace.protocol.fetch_request import WantedByReplica, write_link_fetch, write_replica_fetch
from headrace.protocol.units import to_ms


def test_every_field_is_read_as_it_was_meant() -> None:
    one, two = UUID(int=2**127 + 1), UUID(int=9)
    first = WantedByReplica(0, 3, 2**40, 2, 17, 1 << 20)
    second = WantedByReplica(300, -1, 0, -1, 0, 5)
    frame = write_replica_fetch(
        77,
        "broker-2",
        replica_id=2,
        replica_epoch=2**35,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=2**31 - 1,
        session_epoch=6,
        wanted={one: [first, second], two: [first]},
        forgotten={two: [1, 2, 3]},
    )
    header = read_request_header(frame, flexible=True)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (1, 15, 77, "broker-2")
    request = read_request(frame, header)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 2**35)
    assert (to_ms(request.max_wait), request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    assert (request.session_id, request.session_epoch, request.isolation_level) == (2**31 - 1, 6, 0)
    assert request.rack_id == ""
    assert [topic.topic_id for topic in request.topics] == [one, two]
    read = [
        (
            part.partition,
            part.current_leader_epoch,
            part.fetch_offset,
            part.last_fetched_epoch,
            part.log_start_offset,
            part.partition_max_bytes,
        )
        for topic in request.topics
        for part in topic.partitions
    ]
    assert read == [first, second, first]
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(two, (1, 2, 3))]


def test_a_link_fetches_as_a_consumer_that_reads_committed_records() -> None:
    topic, part = UUID(int=9), WantedByReplica(3, 7, 2**40, 2, -1, 1 << 20)
    frame = write_link_fetch(
        78,
        "link-eu",
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=5,
        session_epoch=6,
        wanted={topic: [part]},
        forgotten={topic: [1]},
    )
    header = read_request_header(frame, flexible=True)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (1, 13, 78, "link-eu")
    request = read_request(frame, header)
    assert (request.replica_id, request.isolation_level, request.rack_id) == (-1, 1, "")
    assert (request.session_id, request.session_epoch) == (5, 6)
    (wanted,) = request.topics[0].partitions
    assert (wanted.partition, wanted.current_leader_epoch, wanted.fetch_offset) == (3, 7, 2**40)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(topic, (1,))]
