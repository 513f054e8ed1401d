"""The work of `headrace log`: selects logs, prints batches and records, verifies files."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.cli.errors import BadArgument
from headrace.cli.json_text import json_or_text, text_or_base64
from headrace.cli.json_text import line as json_line
from headrace.cli.log.keys import FolderCiphers
from headrace.cli.names import nearest
from headrace.cli.output import count, human_bytes, say
from headrace.cli.progress import ProgressLine
from headrace.model.errors import CorruptBatch, EncryptionError, RecordError
from headrace.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, check_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record, iter_records
from headrace.runtime.disk import OsDisk
from headrace.storage.batches import StoredBatch
from headrace.storage.inspect import LogFolder, find_logs, segments_from, stored_batches, verify_log

_PRINTABLE_CONTROLS = frozenset("\t")
_SHOW_EVERY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records to print, and how."""

    start: int = 0
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    maximum: int | None = None
    batches: bool = False
    output: str = "text"

    def wants(self, first: int, last: int, earliest: int, latest: int) -> bool:
        """Whether anything between these offsets and timestamps can be among what is asked for."""
        return (
            last >= self.start
            and (self.end is None or first < self.end)
            and (self.since_ms is None or latest >= self.since_ms)
            and (self.until_ms is None or earliest < self.until_ms)
        )


def select_logs(path: Path, topic: str | None, partition: int | None) -> list[LogFolder]:
    """The logs at `path` that are asked for; `BadArgument` if there are none."""
    if not path.exists():
        raise BadArgument(f"{path} does not exist")
    try:
        found = find_logs(path)
    except PermissionError as error:
        raise BadArgument(f"{error.filename} may not be read: run this as the user the broker runs as") from None
    if not found:
        raise BadArgument(f"{path} holds no logs: name a data directory, a partition's folder or a .log file")
    logs = [log for log in found if _is_meant(log, topic, partition)]
    if not logs:
        wanted = f"topic {topic}" if topic is not None else "topic"
        wanted += f" with partition {partition}" if partition is not None else ""
        near = None if topic is None else nearest(topic, {log.topic_partition[0] for log in found})
        raise BadArgument(f"{path} has no {wanted}{f'; did you mean {near}?' if near is not None else ''}")
    return logs


def _is_meant(log: LogFolder, topic: str | None, partition: int | None) -> bool:
    its_topic, its_partition = log.topic_partition
    return (topic is None or its_topic == topic) and (partition is None or its_partition == partition)


def dump_logs(logs: list[LogFolder], selection: Selection, config_file: Path | None = None) -> bool:
    """Print what is selected; False if something could not be read. `config_file` has the settings of a broker with
    the master key, for encrypted topics."""
    dump = _Dump(selection, FolderCiphers(config_file))
    for log in logs:
        for line in dump.lines(log):
            sys.stdout.write(line + "\n")
            dump.printed += 1
            if dump.printed == selection.maximum:
                return dump.is_whole
    return dump.is_whole


class _Dump:
    def __init__(self, selection: Selection, ciphers: FolderCiphers) -> None:
        self._selection = selection
        self._ciphers = ciphers
        self.printed = 0
        self.is_whole = True

    def lines(self, log: LogFolder) -> Iterator[str]:
        selection = self._selection
        for segment in segments_from(log, selection.start):
            position = 0
            try:
                for batch in stored_batches(OsDisk(), segment):
                    header = batch.header
                    position = batch.position + header.size
                    if selection.end is not None and header.base_offset >= selection.end:
                        return
                    # A batch's first timestamp need not be its earliest, so only the latest one rules a batch out.
                    if selection.wants(header.base_offset, header.last_offset, -(2**63), header.max_timestamp):
                        yield from self._batch_lines(log, segment, batch)
            except FileNotFoundError:
                continue
            except CorruptBatch as error:
                self._complain(f"{segment}: {error}; the rest of the file cannot be read")
            else:
                left = segment.stat().st_size - position if segment.exists() else 0
                if left > 0 and segment != log.segments[-1]:
                    self._complain(f"{segment}: the last {left} bytes are not a whole batch")

    def _batch_lines(self, log: LogFolder, segment: Path, batch: StoredBatch) -> Iterator[str]:
        header, selection = batch.header, self._selection
        problem = None
        try:
            check_batch(batch.data)
        except RecordError as error:
            problem = str(error)
        if selection.batches:
            yield _batch_line(log, batch, problem, as_json=selection.output == "json")
        elif problem is None:
            try:
                data, plain = batch.data, header
                if header.is_encrypted:
                    decrypted, plain = self._ciphers.cipher_of(log).decrypt(batch.data, header)
                    data = memoryview(decrypted)
                for record in iter_records(data, plain):
                    if selection.wants(record.offset, record.offset, record.timestamp, record.timestamp):
                        yield _record_line(log, record, header, selection.output)
            except (RecordError, EncryptionError) as error:
                problem = str(error)
        if problem is not None:
            offsets = f"offsets {header.base_offset} to {header.last_offset}"
            self._complain(f"{segment} at byte {batch.position}: {problem} ({offsets})")

    def _complain(self, problem: str) -> None:
        self.is_whole = False
        say(f"headrace: {problem}")


def _record_line(log: LogFolder, record: Record, header: BatchHeader, output: str) -> str:
    topic, partition = log.topic_partition
    if output == "json":
        document: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": json_or_text(record.key),
            "value": json_or_text(record.value),
            "headers": [[name, text_or_base64(value)] for name, value in record.headers],
        }
        return json_line(document)
    show = _hex if output == "hex" else _text
    fields = [f"{log.name} offset {record.offset}", _time(record.timestamp)]
    if header.is_control:
        fields.append("control")
    fields += [f"key {show(record.key)}", f"value {show(record.value)}"]
    if record.headers:
        fields.append("headers " + ", ".join(f"{_text(name.encode())}={show(value)}" for name, value in record.headers))
    return "  ".join(fields)


def _batch_line(log: LogFolder, batch: StoredBatch, problem: str | None, *, as_json: bool) -> str:
    header = batch.header
    topic, partition = log.topic_partition
    codec = Codec(header.codec).name.lower() if header.codec in list(Codec) else f"unknown({header.codec})"
    has_horizon = bool(header.attributes & DELETE_HORIZON)
    if as_json:
        document: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "position": batch.position,
            "size": header.size,
            **header._asdict(),
            "last_offset": header.last_offset,
            "codec": codec,
            "timestamp_type": "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime",
            "transactional": header.is_transactional,
            "control": header.is_control,
            "encrypted": header.is_encrypted,
            "delete_horizon": header.base_timestamp if has_horizon else None,
            "valid": problem is None,
        }
        return json.dumps(document, separators=(",", ":"))
    fields = [
        f"{log.name} offsets {header.base_offset} to {header.last_offset}",
        f"position {batch.position}",
        count(header.size, "byte"),
        count(header.record_count, "record"),
        f"codec {codec}",
        f"newest {_time(header.max_timestamp)}",
        f"epoch {header.leader_epoch}",
    ]
    if header.attributes & LOG_APPEND_TIME:
        fields.append("log-append time")
    if header.producer_id >= 0:
        fields.append(f"producer {header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}")
    if header.is_transactional:
        fields.append("transactional")
    if header.is_control:
        fields.append("control")
    if header.is_encrypted:
        fields.append("encrypted")
    if has_horizon:
        fields.append(f"tombstones go after {_time(header.base_timestamp)}")
    fields.append(f"checksum {header.crc:08x}{'' if problem is None else ' WRONG'}")
    return "  ".join(fields)


def _time(timestamp_ms: int) -> str:
    if timestamp_ms == -1:
        return "no time"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(data: bytes | None) -> str:
    """As text on one line where it is text, in hex where it is not."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _hex(data)
    if all(character.isprintable() or character in _PRINTABLE_CONTROLS for character in text):
        return text or '""'
    return json.dumps(text, ensure_ascii=False)


def _hex(data: bytes | None) -> str:
    return "null" if data is None else f"0x{data.hex()}"


def verify_logs(logs: list[LogFolder], *, decode: bool) -> bool:
    """Check the logs, print what is wrong, and say so at the end; False if anything is."""
    problems = 0
    done_bytes = shown_bytes = 0
    total_bytes = sum(log.size_bytes for log in logs)
    with ProgressLine("bytes checked", total=total_bytes) as bar:

        def progress(size: int) -> None:
            nonlocal done_bytes, shown_bytes
            done_bytes += size
            if done_bytes - shown_bytes >= _SHOW_EVERY_BYTES:
                shown_bytes = done_bytes
                bar.update(done_bytes, done_bytes)

        for log in logs:
            for problem in verify_log(OsDisk(), log, decode=decode, progress=progress):
                problems += 1
                print(problem)
    segments = sum(len(log.segments) for log in logs)
    scope = f"{count(len(logs), 'log')}, {count(segments, 'segment')}, {human_bytes(done_bytes)}"
    if problems:
        say(f"headrace: {count(problems, 'problem')} in {scope}")
        return False
    print(f"All is well: {scope}")
    return True
