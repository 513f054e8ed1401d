import pytest

pytest.importorskip("pyspark")

from headrace.pipelines.dead_letters.rejects import RejectedRecord, Rejects, read_rejects, write_rejects
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.run.failing_rows import batch_ranges, by_source, describe_ranges
from headrace.pipelines.source.offsets import OffsetRange
from headrace.pipelines.spec.model import Source


def test_the_records_of_a_batch_are_known_from_what_spark_tells_of_its_failure():
    first = '[{"orders": {"0": 4, "1": 2}, "began at": {"orders": {"0": 1, "1": 2}}}]'
    assert batch_ranges("[-]", first) == [[OffsetRange("orders", 0, 1, 4)]]
    later = batch_ranges('[{"a-b": {"0": 4}}, -]', '[{"a-b": {"0": 6, "1": 3}}, {"c": {"0": 1}}]')
    assert later == [[OffsetRange("a-b", 0, 4, 6), OffsetRange("a-b", 1, 0, 3)], [OffsetRange("c", 0, 0, 1)]]
    assert describe_ranges(later) == "a-b/0 from offset 4 to 5, a-b/1 from offset 0 to 2, c/0 from offset 0 to 0"
    assert batch_ranges(None, None) == batch_ranges("", "no offsets") == []


def test_records_belong_to_a_source_unless_two_read_the_same_topic():
    one, two = OffsetRange("orders", 0, 0, 4), OffsetRange("users", 0, 1, 2)
    streams = {"orders": Source(topic="orders"), "users": Source(pattern="us.*")}
    assert by_source([[one], [two]], streams) == {"orders": [one], "users": [two]}
    assert by_source([[one], [one]], streams) == {"orders": [one], "users": []}
    assert by_source([[one], [one._replace(end=3)]], streams) == {}
    assert by_source([[one]], {**streams, "again": Source(topic="orders")}) == {}


def test_what_is_set_aside_belongs_to_one_batch_and_its_letters_have_rising_numbers(tmp_path):
    one, two, three = (RejectedRecord("orders", 0, offset, "why") for offset in (3, 5, 9))
    rejects = Rejects().with_found("q", 7, [one])
    again = rejects.all_written().with_found("q", 7, [one, two])
    assert (again.records, again.written) == ([one, two], 1)
    assert again.with_found("q", 7, [two]) == again
    later = again.with_found("q", 8, [three])
    assert (later.records, later.written) == ([three], 0)
    assert rejects.number_of(0) < again.number_of(1) < later.number_of(0)
    write_rejects(tmp_path / "sink" / "rejected.json", later)
    assert read_rejects(tmp_path / "sink" / "rejected.json") == later
    assert read_rejects(tmp_path / "none.json") == Rejects()
    write_rejects(tmp_path / "newer.json", Rejects("q", 1, format=2))
    with pytest.raises(PipelineError, match=r"was written by a newer Headrace \(format 2, this one reads 1\)"):
        read_rejects(tmp_path / "newer.json")
