"""The difference of two texts, and how schemas are shown."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.admin.schema_diff import line_diff, pretty

LINES = st.lists(st.sampled_from("abcde"), max_size=30)


@given(LINES, LINES)
def test_both_texts_are_in_the_difference(before: list[str], after: list[str]) -> None:
    lines = line_diff(before, after)
    assert [each.text for each in lines if each.change != "added"] == before
    assert [each.text for each in lines if each.change != "removed"] == after
    assert [each.before for each in lines if each.before is not None] == list(range(1, len(before) + 1))
    assert [each.after for each in lines if each.after is not None] == list(range(1, len(after) + 1))


@given(LINES, LINES)
def test_the_difference_is_the_shortest(before: list[str], after: list[str]) -> None:
    longest = [[0] * (len(after) + 1) for _ in range(len(before) + 1)]
    for i, a in enumerate(before):
        for j, b in enumerate(after):
            longest[i + 1][j + 1] = longest[i][j] + 1 if a == b else max(longest[i][j + 1], longest[i + 1][j])
    same = sum(each.change == "same" for each in line_diff(before, after))
    assert same == longest[-1][-1]


def test_texts_with_little_in_common_are_replaced() -> None:
    before, after = [f"a{n}" for n in range(50_000)], [f"b{n}" for n in range(50_000)]
    lines = line_diff(["first", *before, "last"], ["first", *after, "last"])
    assert [lines[0].change, lines[-1].change] == ["same", "same"]
    assert sum(each.change == "removed" for each in lines) == 50_000


def test_json_is_indented_and_other_texts_stay() -> None:
    assert pretty("AVRO", '{"type":"int"}') == '{\n  "type": "int"\n}'
    assert pretty("AVRO", '"string"') == '"string"'
    assert pretty("PROTOBUF", 'syntax = "proto3";\n') == 'syntax = "proto3";\n'
    assert pretty("JSON", "{") == "{"
