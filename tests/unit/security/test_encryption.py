"""Master keys and their sources, data keys, and the cipher of batches."""

import os
import stat
from base64 import b64encode
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from headrace.model.errors import DataKeyMissing, NotAuthentic, SettingsError, TopicShredded
from headrace.security.encryption.batch_cipher import OVERHEAD_BYTES, BatchCipher
from headrace.security.encryption.data_keys import UnwrappedKeys, add_version, rewrap, shred, unwrap
from headrace.security.encryption.key_source import load_master_keys
from headrace.security.encryption.master_key import KeyNotUnwrapped, MasterKey, MasterKeys, parse_master_keys

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
TOPIC = UUID(int=5)


def text(key: bytes) -> str:
    return b64encode(key).decode()


def master(*keys: bytes) -> MasterKeys:
    return MasterKeys(MasterKey(keys[0]), tuple(map(MasterKey, keys[1:])))


class TestMasterKeys:
    def test_the_first_is_current_and_the_others_unwrap(self) -> None:
        keys = parse_master_keys(f"{text(NEW)}\n{text(OLD)},\n", "here")
        assert keys.current.key_id == MasterKey(NEW).key_id
        assert keys.get(MasterKey(OLD).key_id) is keys.former[0]

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ("", "has no master key"),
            ("not*base64", "master key 1 is not base64"),
            (text(OLD) + " " + text(bytes(16)), "master key 2 is base64 of 16 bytes, not of 32"),
        ],
    )
    def test_an_error_names_the_source_and_not_the_key(self, given: str, problem: str) -> None:
        with pytest.raises(SettingsError, match=problem) as raised:
            parse_master_keys(given, "the file")
        assert "the file" in str(raised.value)
        assert not given or given not in str(raised.value)

    def test_a_wrapped_key_belongs_to_its_context(self) -> None:
        key = MasterKey(OLD)
        wrapped = key.wrap(b"k" * 32, b"topic")
        assert key.unwrap(wrapped, b"topic") == b"k" * 32
        assert b"k" * 32 not in wrapped
        for other, context in ((key, b"other"), (MasterKey(NEW), b"topic")):
            with pytest.raises(KeyNotUnwrapped):
                other.unwrap(wrapped, context)
        with pytest.raises(KeyNotUnwrapped):
            key.unwrap(b"short", b"topic")

    def test_no_key_is_shown(self) -> None:
        keys = master(OLD)
        shown = repr(keys) + repr(unwrap(add_version(None, TOPIC, keys, 0), TOPIC, keys))
        assert text(OLD) not in shown
        assert "\\x" not in shown


class TestSources:
    def test_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        path.write_text(text(OLD) + "\n")
        path.chmod(stat.S_IRUSR)
        keys = load_master_keys("", str(path), "")
        assert keys is not None
        assert keys.current.key_id == MasterKey(OLD).key_id

    def test_a_file_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        path.write_text(text(OLD))
        path.chmod(0o644)
        with pytest.raises(SettingsError, match="chmod 600"):
            load_master_keys("", str(path), "")

    def test_a_file_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="No such file"):
            load_master_keys("", str(tmp_path / "none"), "")

    def test_a_command(self) -> None:
        keys = load_master_keys("", "", f"echo {text(OLD)}")
        assert keys is not None
        assert keys.current.key_id == MasterKey(OLD).key_id

    @pytest.mark.parametrize(
        ("command", "problem"),
        [
            ("sh -c 'echo no access >&2; echo secret; exit 3'", "failed with exit code 3: no access"),
            ("no-such-command-at-all", "cannot be run: No such file or directory: no-such-command-at-all"),
            ("echo 'open", "cannot be parsed"),
            ("echo nothing", "is not base64"),
        ],
    )
    def test_a_command_that_fails_says_why(self, command: str, problem: str) -> None:
        with pytest.raises(SettingsError, match=problem) as raised:
            load_master_keys("", "", command)
        assert "secret" not in str(raised.value)

    def test_only_one_source_may_be_set(self) -> None:
        with pytest.raises(SettingsError, match=r"encryption.master.key and encryption.master.key.file are both set"):
            load_master_keys(text(OLD), "file", "")
        assert load_master_keys("", "", "") is None


class TestDataKeys:
    def test_a_new_key_is_unwrapped_by_its_master_key_alone(self) -> None:
        keys = add_version(None, TOPIC, master(OLD), 12)
        found = unwrap(keys, TOPIC, master(OLD))
        assert (found.current, found.problem, len(found.by_version[1])) == (1, "", 32)
        for other in (None, master(NEW)):
            missing = unwrap(keys, TOPIC, other)
            assert missing.current is None
            assert MasterKey(OLD).key_id in missing.problem
            assert "encryption.master.key.file" in missing.problem
        assert unwrap(keys, uuid4(), master(OLD)).current is None, "the record of another topic"

    def test_rewrapping_changes_the_wrapping_and_not_the_key(self) -> None:
        keys = add_version(None, TOPIC, master(OLD), 12)
        again = rewrap(keys, TOPIC, master(NEW, OLD))
        assert again is not None
        assert unwrap(again, TOPIC, master(NEW)) == unwrap(keys, TOPIC, master(OLD))
        assert unwrap(again, TOPIC, master(OLD)).current is None
        assert rewrap(again, TOPIC, master(NEW, OLD)) is None, "it is under the current one already"
        assert rewrap(keys, TOPIC, master(NEW)) is None, "it cannot be unwrapped here"

    def test_a_shredded_topic_has_no_key_until_a_new_one_is_made(self) -> None:
        keys = shred(add_version(None, TOPIC, master(OLD), 12), 99)
        assert (keys.versions, keys.shredded_ms) == ((), 99)
        assert unwrap(keys, TOPIC, master(OLD)).is_shredded
        again = unwrap(add_version(keys, TOPIC, master(OLD), 100), TOPIC, master(OLD))
        assert (again.current, list(again.by_version), again.is_shredded, again.destroyed) == (2, [2], False, 1)

    def test_what_was_shredded_is_told_from_a_key_that_another_master_key_opens(self) -> None:
        keys = add_version(None, TOPIC, master(OLD), 12)
        prefix, sealed = BatchCipher(unwrap(keys, TOPIC, master(OLD)), "the topic t").encrypt(b"records", b"place")
        with pytest.raises(DataKeyMissing, match="under the master key"):
            BatchCipher(unwrap(keys, TOPIC, master(NEW)), "the topic t").decrypt(prefix, sealed, b"place")
        again = add_version(shred(keys, 99), TOPIC, master(OLD), 100)
        for left in (shred(keys, 99), again):
            with pytest.raises(TopicShredded, match="the topic t was shredded"):
                BatchCipher(unwrap(left, TOPIC, master(NEW)), "the topic t").decrypt(prefix, sealed, b"place")


class TestBatchCipher:
    keys = UnwrappedKeys({1: OLD}, 1)

    def test_a_round_trip(self) -> None:
        prefix, sealed = BatchCipher(self.keys, "t").encrypt(b"records" * 9, b"place")
        assert len(prefix) + len(sealed) == 63 + OVERHEAD_BYTES
        assert b"records" not in sealed
        assert BatchCipher(self.keys, "t").decrypt(prefix, sealed, b"place") == b"records" * 9
        for changed in (
            (prefix, sealed, b"other"),
            (prefix, sealed[:5], b"place"),
            (b"\2" + prefix[1:], sealed, b"place"),
        ):
            with pytest.raises(NotAuthentic):
                BatchCipher(self.keys, "t").decrypt(*changed)
        with pytest.raises(NotAuthentic):
            BatchCipher(self.keys, "t").decrypt(prefix[:4], b"", b"place")

    def test_every_cipher_has_its_own_salt_and_every_batch_its_own_nonce(self) -> None:
        ciphers = [BatchCipher(self.keys, "t") for _ in range(3)]
        heads = [cipher.encrypt(b"x", b"")[0] for cipher in ciphers for _ in range(10)]
        assert len(set(heads)) == 30
        assert len({head[:21] for head in heads}) == 3

    def test_a_salt_is_used_for_a_bounded_number_of_batches(self) -> None:
        cipher = BatchCipher(self.keys, "t", batches_per_salt=4)
        salts = [cipher.encrypt(b"x", b"")[0][:21] for _ in range(9)]
        assert [salts.count(salt) for salt in dict.fromkeys(salts)] == [4, 4, 1]
        reader = BatchCipher(self.keys, "t")
        assert all(reader.decrypt(*cipher.encrypt(b"x", b""), b"") == b"x" for _ in range(9))

    def test_without_the_version_the_problem_is_said(self) -> None:
        prefix, sealed = BatchCipher(self.keys, "the topic t").encrypt(b"x", b"")
        with pytest.raises(DataKeyMissing, match="the topic t has no data key of version 1"):
            BatchCipher(UnwrappedKeys({2: os.urandom(32)}, 2), "the topic t").decrypt(prefix, sealed, b"")
