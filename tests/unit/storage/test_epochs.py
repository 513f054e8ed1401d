import pytest

from headrace.storage.epochs import Epochs, EpochsDamaged


def epochs(*entries: tuple[int, int]) -> Epochs:
    result = Epochs()
    for epoch, start in entries:
        result.assign(epoch, start)
    return result


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (2, 20)), (5, (5, 50)), (6, (-1, -1)), (-1, (-1, -1))],
)
def test_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    known = epochs((2, 10), (5, 20))
    assert known.end_offset_for(asked, log_end_offset=50) == answer


def test_nothing_is_known_of_an_empty_log() -> None:
    assert Epochs().end_offset_for(0, 0) == (-1, -1)


def test_an_epoch_without_records_leaves_no_trace() -> None:
    assert epochs((1, 0), (2, 10), (3, 10)).entries() == [(1, 0), (3, 10)]


def test_an_old_epoch_changes_nothing() -> None:
    assert epochs((4, 0), (3, 10), (4, 20)).entries() == [(4, 0)]


def test_truncating_at_either_end() -> None:
    known = epochs((1, 0), (2, 10), (3, 20))
    known.truncate_from(20)
    assert (known.entries(), known.latest) == ([(1, 0), (2, 10)], 2)
    known.truncate_before(15)
    assert known.entries() == [(2, 15)]
    known.truncate_from(0)
    assert (known.entries(), known.latest) == ([], -1)


def test_which_epoch_wrote_an_offset() -> None:
    known = epochs((1, 5), (4, 10))
    assert [known.epoch_of(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 4, 4]


def test_the_checkpoint_is_kafkas() -> None:
    text = epochs((0, 0), (3, 1042)).to_text()
    assert text == "0\n2\n0 0\n3 1042\n"
    assert Epochs.from_text(text).entries() == [(0, 0), (3, 1042)]
    assert not Epochs.from_text(text).changed


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0 x\n", "0\n2\n1 0\n0 5\n", "0\n1\n0 0", "\0\0\0"]
)
def test_a_damaged_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(EpochsDamaged):
        Epochs.from_text(text)
