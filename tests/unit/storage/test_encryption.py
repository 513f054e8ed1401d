"""An encrypted log: what is on disk, who can read it, and what a change of any byte leads to."""

import pytest

from headrace.config.topic import TopicSettings
from headrace.model.errors import DataKeyMissing, EncryptionError, InvalidRecord, NotAuthentic, TopicShredded
from headrace.records.batch import CONTROL, ENCRYPTED, HEADER_SIZE, LOG_OVERHEAD, check_batch, iter_headers
from headrace.records.builder import build_batch, seal
from headrace.records.compression import Codec
from headrace.records.reader import Record, iter_records
from headrace.records.validation import validate_for_topic
from headrace.runtime.disk import Buffer
from headrace.security.encryption.batch_cipher import OVERHEAD_BYTES
from headrace.security.encryption.data_keys import UnwrappedKeys
from headrace.storage.encryption import LogCipher
from headrace.storage.log import Log
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import DATA_KEYS, PARTITION, SMALL, TOPIC_ID, LogBench, cipher_of, position_of

OTHER_KEYS = UnwrappedKeys({1: bytes(32)}, 1)
NO_KEY = UnwrappedKeys({}, None, "is encrypted under the master key a1b2, and this broker has none")
SHREDDED = UnwrappedKeys({}, None, "was shredded", is_shredded=True, destroyed=1)


def stored(log: Log) -> bytes:
    """What is on disk, from the start of the last segment on."""
    return log.active.reader().read(0, log.active.size)


def raw(log: Log, offset: int = 0) -> Buffer:
    cut = log.slice(offset, 10**6, log.end_offset, at_least_one=True)
    assert cut is not None
    return cut.file.read(cut.position, cut.length)


def values(bench: LogBench) -> list[bytes | None]:
    return [record.value for record in bench.records()]


def test_what_was_appended_is_read_and_is_not_on_disk() -> None:
    bench = LogBench(keys=DATA_KEYS)
    bench.append(b"secret one", b"secret two", key=b"secret key")
    bench.append(b"secret three")
    assert values(bench) == [b"secret one", b"secret two", b"secret three"]
    assert isinstance(bench.disk, ModelDisk)
    assert not bench.disk.contains(b"secret")


def test_the_decrypted_batch_is_the_one_that_was_produced() -> None:
    bench = LogBench(keys=DATA_KEYS)
    records = [Record(0, 5, b"key", b"value" * 50, (("name", b"text"),))]
    batch = build_batch(records, codec=Codec.ZSTD, producer_id=7, producer_epoch=0, base_sequence=0)
    bench.log.append(batch, check_batch(batch), 3)
    cut = bench.log.slice(0, 1000, 1, at_least_one=True)
    assert cut is not None
    found = cut.read()
    assert bytes(found)[16:] == batch[16:], "all but the stamp of the leader, the checksum included"
    assert cut.length == len(batch) + OVERHEAD_BYTES
    assert check_batch(found).leader_epoch == 3


def test_the_header_and_the_checksum_need_no_key() -> None:
    bench = LogBench(keys=DATA_KEYS)
    bench.append(b"a", b"b", b"c", timestamp=77, producer=4, sequence=9)
    header = check_batch(raw(bench.log))
    assert header.is_encrypted
    assert (header.record_count, header.last_offset, header.max_timestamp) == (3, 2, 77)
    assert (header.producer_id, header.base_sequence) == (4, 9)


def test_transaction_markers_stay_readable_without_a_key() -> None:
    bench = LogBench(keys=DATA_KEYS)
    bench.append(b"a", producer=4, sequence=0, transactional=True)
    bench.end_transaction(4, committed=False)
    bench.flush()
    assert [bool(header.attributes & ENCRYPTED) for _, header in iter_headers(raw(bench.log))] == [True, False]
    bench.keys = None
    again = bench.reopen()
    assert again.log.aborted.within(0, 2), "recovery has read the marker"


@pytest.mark.parametrize("lost", [1, 20, HEADER_SIZE - 1, HEADER_SIZE + 40, None])
def test_recovery_cuts_a_torn_batch_off_without_a_key(lost: int | None) -> None:
    bench = LogBench(keys=DATA_KEYS)
    for number in range(4):
        bench.append(b"%d" % number)
    start = position_of(bench.log, 3)
    size = bench.log.active.size
    bench.log.active.writer.truncate(start + 1 if lost is None else size - lost)  # type: ignore[union-attr]
    assert isinstance(bench.disk, ModelDisk)
    bench.keys = None
    again = bench.reopen(bench.disk.after_process_kill())
    assert again.log.end_offset == 3
    assert again.log.active.size == start
    again.log.cipher = cipher_of(DATA_KEYS)
    assert values(again) == [b"0", b"1", b"2"]


def test_encryption_is_turned_on_and_off_with_data_in_the_log() -> None:
    bench = LogBench()
    bench.append(b"plain")
    bench.log.cipher = cipher_of(DATA_KEYS)
    bench.append(b"encrypted")
    bench.log.cipher = cipher_of(DATA_KEYS, encrypts=False)
    bench.append(b"plain again")
    assert values(bench) == [b"plain", b"encrypted", b"plain again"]
    assert [header.is_encrypted for _, header in iter_headers(raw(bench.log))] == [False, True, False]


def test_a_follower_stores_the_same_bytes_and_needs_no_key() -> None:
    leader = LogBench(keys=DATA_KEYS)
    for number in range(3):
        leader.append(b"value %d" % number)
    follower = LogBench()
    follower.log.append_replicated(raw(leader.log))
    assert stored(follower.log) == stored(leader.log)
    follower.log.cipher = cipher_of(DATA_KEYS)
    assert values(follower) == [b"value 0", b"value 1", b"value 2"]


@pytest.mark.parametrize(
    "keys",
    [OTHER_KEYS, NO_KEY, SHREDDED, UnwrappedKeys({2: bytes(32)}, 2)],
    ids=["wrong", "missing", "shredded", "version"],
)
def test_without_the_right_key_nothing_is_read_and_nothing_is_lost(keys: UnwrappedKeys) -> None:
    bench = LogBench(keys=DATA_KEYS)
    bench.append(b"value", timestamp=50)
    before = stored(bench.log)
    bench.log.cipher = cipher_of(keys)
    with pytest.raises(EncryptionError):
        values(bench)
    with pytest.raises(EncryptionError):
        bench.log.offset_for_time(40)
    assert stored(bench.log) == before
    bench.log.cipher = cipher_of(DATA_KEYS)
    assert values(bench) == [b"value"]


def test_without_a_key_nothing_is_written_in_the_clear() -> None:
    bench = LogBench(keys=NO_KEY)
    with pytest.raises(DataKeyMissing, match="the topic orders is encrypted under the master key a1b2"):
        bench.append(b"value", producer=3, sequence=0)
    assert (bench.log.end_offset, bench.log.active.size) == (0, 0)
    bench.log.cipher = cipher_of(DATA_KEYS)
    assert not bench.append(b"value", producer=3, sequence=0).duplicate, "the sequence was not used up"


def test_a_shredded_topic_refuses_writes() -> None:
    with pytest.raises(TopicShredded, match=r"encryption\.at\.rest=true"):
        LogBench(keys=SHREDDED).append(b"value")


def test_records_are_found_by_their_timestamps() -> None:
    bench = LogBench(keys=DATA_KEYS)
    for number in range(30):
        bench.append(b"x" * 50, timestamp=1000 + number)
    found = bench.log.offset_for_time(1017)
    assert found is not None
    assert (found.offset, found.timestamp) == (17, 1017)
    newest = bench.log.max_timestamp()
    assert newest is not None
    assert newest.offset == 29


def test_a_batch_cannot_be_moved_or_changed() -> None:
    """Whatever is changed on disk and given a valid checksum is refused when it is read."""
    bench = LogBench(keys=DATA_KEYS)
    bench.append(b"value", timestamp=10, producer=5, sequence=3)
    batch = raw(bench.log)
    header = check_batch(batch)
    records = bytes(batch)[HEADER_SIZE:]
    cipher = cipher_of(DATA_KEYS)
    assert next(iter_records(cipher.decrypt(batch, header)[0])).value == b"value"
    forged = [
        seal(header._replace(base_offset=1), records),
        seal(header._replace(max_timestamp=11), records),
        seal(header._replace(producer_id=6), records),
        seal(header._replace(attributes=header.attributes | CONTROL), records),
        seal(header._replace(record_count=2), records),
        *(seal(header, records[:at] + bytes((records[at] ^ 1,)) + records[at + 1 :]) for at in (5, 22, 34, -1)),
    ]
    for one in forged:
        with pytest.raises(NotAuthentic):
            cipher.decrypt(one, check_batch(one))
    elsewhere = [
        LogCipher(DATA_KEYS, PARTITION.topic, TOPIC_ID, 1, encrypts=True),
        LogCipher(DATA_KEYS, PARTITION.topic, type(TOPIC_ID)(int=8), PARTITION.partition, encrypts=True),
    ]
    for other in elsewhere:
        with pytest.raises(NotAuthentic):
            other.decrypt(batch, header)


def test_a_client_cannot_pretend_that_a_batch_is_encrypted() -> None:
    batch = build_batch([Record(0, 1, None, b"value")])
    header = check_batch(batch)
    forged = seal(header._replace(attributes=ENCRYPTED), batch[HEADER_SIZE:])
    with pytest.raises(InvalidRecord, match="attribute 14"):
        validate_for_topic(forged, check_batch(forged), SMALL, 1, request_version=9)


@pytest.mark.parametrize("size", [10, 5_000, 70_000, 300_000])
def test_parts_are_the_same_bytes(size: int) -> None:
    bench = LogBench(keys=DATA_KEYS, settings=TopicSettings())
    for number in range(600_000 // size // 4 + 2):
        bench.log.cipher = cipher_of(DATA_KEYS, encrypts=number % 5 != 3)
        bench.append(b"%d" % number + bytes(size))
    for max_bytes in (size, size * 3, 700_000, 10**7):
        cut = bench.log.slice(0, max_bytes, bench.log.end_offset, at_least_one=True)
        assert cut is not None
        found = b"".join(cut.read_parts())
        assert found == cut.read()
        assert [header.is_encrypted for _, header in iter_headers(found)] == [False] * len([*iter_headers(found)])


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    bench = LogBench(keys=DATA_KEYS)
    bench.append(b"one")
    bench.append(b"two")
    data = raw(bench.log)
    cipher = cipher_of(DATA_KEYS)
    found = cipher.decrypt_all(data[: len(data) - 1])
    assert [header.base_offset for _, header in iter_headers(found)] == [0]
    assert len(found) == check_batch(found).length + LOG_OVERHEAD
