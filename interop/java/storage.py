"""Kafka's own tool reads the files of a stopped broker: logs, and the indexes against the logs."""

import re
from pathlib import Path

from apache import Java, Ran
from report import Report, expect

_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) .* compresscodec: (\w+) .* isvalid: (\w+)", re.MULTILINE)
_RECORD = re.compile(r"^\| offset: (\d+) ", re.MULTILINE)
_ENTRY_BYTES = {".index": 8, ".timeindex": 12}
_SANE = re.compile(r"index (?:passed sanity check|is empty)\.$", re.MULTILINE)
_FAULT = re.compile(
    r"mismatch|out of order|non-?\s?(?:consecutive|monotonic)|corrupt|not found|exception", re.IGNORECASE
)


class Dump:
    def __init__(self, java: Java) -> None:
        self._java = java

    def __call__(self, files: list[Path], *arguments: str) -> Ran:
        expect(bool(files), "there are no files to dump")
        names = ",".join(map(str, files))
        ran = self._java.run("kafka.tools.DumpLogSegments", "--files", names, *arguments)
        # The tool tells mismatches on stderr and ends with 0 all the same.
        faults = [line for line in (ran.out + ran.err).splitlines() if _FAULT.search(line)]
        expect(ran.code == 0 and not faults, "\n".join(faults) or ran)
        for file in files:
            expect(f"Dumping {file}\n" in ran.out, f"{file.name} was not read")
        return ran


def check_storage(report: Report, java: Java, data_dir: Path, codecs: dict[str, str]) -> None:
    """`codecs` is topic -> codec of its batches, of topics that begin at offset 0."""
    dump = Dump(java)
    for topic, codec in codecs.items():
        with report.check(f"DumpLogSegments reads every record of {topic}, {codec}, without a gap"):
            for folder in sorted(data_dir.glob(f"{topic}-[0-9]*")):
                out = dump(sorted(folder.glob("*.log")), "--deep-iteration").out
                batches = _BATCH.findall(out)
                expect(
                    bool(batches) and {(name, valid) for *_, name, valid in batches} == {(codec, "true")}, out[:2000]
                )
                offsets = [int(offset) for offset in _RECORD.findall(out)]
                expect(offsets == list(range(int(batches[-1][1]) + 1)), f"{folder.name}: {offsets[:20]} …")
    offset_indexes, time_indexes = (sorted(data_dir.glob(f"*/*.{kind}")) for kind in ("index", "timeindex"))
    for kind, files in (("offset", offset_indexes), ("time", time_indexes)):
        with report.check(f"DumpLogSegments finds {len(files)} {kind} indexes sane"):
            ran = dump(files, "--index-sanity-check")
            expect(len(_SANE.findall(ran.out)) == len(files) and "passed sanity check" in ran.out, ran)
        with report.check(f"DumpLogSegments verifies the {kind} indexes against the logs"):
            dump(files, "--verify-index-only")
        with report.check(f"DumpLogSegments finds one flipped bit in the {kind} indexes, so the check above can fail"):
            _expect_damage_found(dump, max(files, key=lambda file: file.stat().st_size))


def _expect_damage_found(dump: Dump, index: Path) -> None:
    """Flip the lowest bit of an entry in the middle, where every bit counts, and put it back."""
    whole = index.read_bytes()
    entry_bytes = _ENTRY_BYTES[index.suffix]
    damaged = bytearray(whole)
    damaged[len(whole) // entry_bytes // 2 * entry_bytes + 7] ^= 1
    index.write_bytes(damaged)
    try:
        dump([index], "--verify-index-only")
    except AssertionError:
        return
    finally:
        index.write_bytes(whole)
    raise AssertionError(f"{index.name} was damaged and nothing was found")
