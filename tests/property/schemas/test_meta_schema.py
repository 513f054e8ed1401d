"""The compiled meta-schemas accept and refuse the documents that `jsonschema` accepts and refuses."""

from contextlib import nullcontext
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.schemas.json_schema.meta_schema import MetaSchemaMisfit, compiled_meta_schema

VALIDATORS = [
    jsonschema.Draft4Validator,
    jsonschema.Draft6Validator,
    jsonschema.Draft7Validator,
    jsonschema.Draft201909Validator,
    jsonschema.Draft202012Validator,
]
KEYWORDS = sorted(
    {"id", "$id", "$ref", "$anchor", "$dynamicRef", "$defs", "definitions", "$comment", "title", "deprecated"}
    | {"type", "enum", "const", "items", "prefixItems", "additionalItems", "uniqueItems", "contains", "minItems"}
    | {"properties", "patternProperties", "additionalProperties", "propertyNames", "required", "dependencies"}
    | {"dependentRequired", "dependentSchemas", "unevaluatedProperties", "minProperties", "maxProperties"}
    | {"minimum", "exclusiveMinimum", "exclusiveMaximum", "maximum", "multipleOf", "minLength", "pattern", "format"}
    | {"maxLength", "maxItems", "minContains", "maxContains", "unevaluatedItems", "examples", "contentSchema"}
    | {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$vocabulary", "$recursiveAnchor", "readOnly"}
)
TYPES = ["object", "array", "string", "integer", "number", "boolean", "null", "any"]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([0.5, 1.0, -1.0, 0.0])
    | st.sampled_from([*TYPES, "", "#", "a", "#a", "[", "(a+)+$", "https://example.org/x", "http://[", "x y"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a", "["]), inner, max_size=4)
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(KEYWORDS), values, max_size=4) | values


@pytest.mark.parametrize("validator", VALIDATORS, ids=lambda each: each.__name__)
@settings(max_examples=150)
@given(document=documents)
def test_a_document_is_accepted_by_both_or_by_none(validator: Any, document: Any) -> None:
    check = compiled_meta_schema(validator)
    assert check is not None
    try:
        validator.check_schema(document)
    except jsonschema.SchemaError:
        with pytest.raises(MetaSchemaMisfit):
            check(document)
    else:
        check(document)


@pytest.mark.parametrize("validator", VALIDATORS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("keyword", ["minLength", "maxItems", "maxProperties"])
def test_a_whole_number_with_a_point_is_an_integer_from_draft_6_on(validator: Any, keyword: str) -> None:
    check = compiled_meta_schema(validator)
    assert check is not None
    is_draft4 = validator is jsonschema.Draft4Validator
    with pytest.raises(MetaSchemaMisfit) if is_draft4 else nullcontext():
        check({keyword: 1.0})


@pytest.mark.parametrize("validator", VALIDATORS, ids=lambda each: each.__name__)
def test_the_meta_schemas_themselves_fit_and_the_place_of_a_misfit_is_named(validator: Any) -> None:
    check = compiled_meta_schema(validator)
    assert check is not None
    check(validator.META_SCHEMA)
    with pytest.raises(MetaSchemaMisfit) as misfit:
        check({"properties": {"a": {"anyOf": [{}, {"type": "text"}]}}})
    assert misfit.value.path[::-1] == ["properties", "a", "anyOf", 1, "type"]
