import pytest

from headrace.cli.group.run import print_members


@pytest.mark.parametrize(("lag", "words"), [(0, "0 messages"), (1, "1 message"), (1200, "1,200 messages")])
def test_a_group_says_how_many_messages_it_has_to_read(
    lag: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_members({"group": "billing", "state": "empty", "members": [], "lag": lag})
    assert capsys.readouterr().out == f"billing: empty, 0 members, {words} to read\n\n"
