import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.spec.toml_lines import find_places, line_of

TEXT = '''\
# a comment = "not a key"
name = "x"   # and [not] a table

[source]
topic = "a#b"
schema = """
id STRING,   # "quoted"
[nothing]
"""
deduplicate = { by = ["a",
  "b"], within = "1 minute" }

[sources."odd name"]
topic.deep = 'x = y'
[[steps]]
sql = \'\'\'SELECT 1\'\'\'
[[steps]]
  [steps.options]
  flag = true
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("source",), 4),
        (("source", "topic"), 5),
        (("source", "schema"), 6),
        (("source", "deduplicate"), 10),
        (("source", "deduplicate", "by"), 10),
        (("source", "deduplicate", "by", 1), 11),
        (("source", "deduplicate", "within"), 11),
        (("sources", "odd name"), 13),
        (("sources", "odd name", "topic", "deep"), 14),
        (("steps", 0), 15),
        (("steps", 0, "sql"), 16),
        (("steps", 1), 17),
        (("steps", 1, "options", "flag"), 19),
    ],
)
def test_each_key_has_its_line(path, line):
    tomllib.loads(TEXT)
    assert find_places(TEXT)[path].line == line


def test_the_text_of_a_long_string_begins_on_the_line_after_its_quotes():
    places = find_places(TEXT)
    assert places[("source", "schema")].text_line == 7
    assert places[("steps", 0, "sql")].text_line == 16


def test_a_key_that_is_not_there_has_the_line_of_its_table():
    assert line_of(find_places(TEXT), ("source", "nonsense", "deeper")) == 4
    assert line_of(find_places(TEXT), ("nothing",)) is None


VALUES = st.recursive(
    st.one_of(st.text("ab\"'#[]{}=,\\\n ", max_size=8), st.integers(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab -", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


def written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if "\n" in value and "'''" not in value and not value.endswith("'"):
            return f"'''\n{value}'''"
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, list):
        return "[" + ",\n".join(map(written, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {written(each)}' for key, each in value.items()) + " }"
    return str(value)


@given(st.dictionaries(st.text("abc", min_size=1), VALUES, max_size=5))
def test_every_key_of_any_document_is_found_where_it_is_written(document):
    lines: list[str] = []
    expected = {}
    for key, value in document.items():
        expected[key] = len(lines) + 1
        lines += f"{key} = {written(value)}".split("\n")
    text = "\n".join(lines)
    assert tomllib.loads(text) == document
    places = find_places(text)
    assert {key: places[key,].line for key in document} == expected
