"""Schemas of Python types: each is valid, and values of the type fit it and come back."""

import dataclasses
import datetime
import enum
import json
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from headrace.client.schemas.derived import derived_schema
from headrace.client.schemas.values import as_plain, as_type
from headrace.schemas.parsed import incompatibilities, parse_any
from headrace.schemas.payload.codecs import codec_of


class State(enum.Enum):
    NEW = "NEW"
    PAID = "PAID"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Line:
    item: str
    price: Decimal


@dataclasses.dataclass
class Order:
    id: int
    at: datetime.datetime
    day: datetime.date
    state: State
    first: State
    level: Level
    kind: Literal["a", "b"]
    lines: list[Line]
    best: Line
    weight: float
    data: bytes
    key: UUID
    took: datetime.timedelta
    either: int | str
    parent: "Order | None" = None
    note: str | None = None
    city: str = "York"
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    seen: set[int] = dataclasses.field(default_factory=set)
    is_paid: bool = False


def order(**changes: Any) -> Order:
    at = datetime.datetime(2026, 11, 18, 1, 2, 3, 4, tzinfo=datetime.UTC)
    line = Line("tea", Decimal("1.50"))
    made = Order(
        1, at, at.date(), State.PAID, State.NEW, Level.LOW, "a", [line], line, 1.5, b"\x00", UUID(int=5),
        datetime.timedelta(seconds=1.5), "text",
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


class Struct(msgspec.Struct, tag="struct", rename="camel"):
    order_id: int
    note: str = ""


class Model(pydantic.BaseModel):
    id: int
    at: datetime.datetime
    line: Line
    inner: "Model | None" = None
    tags: list[str] = []


class Typed(TypedDict):
    id: int
    note: str


class PartlyTyped(TypedDict):
    id: int
    note: NotRequired[str]


AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
MODEL = Model(id=1, at=AT, line=Line("tea", Decimal("1.5")), inner=Model(id=2, at=AT, line=Line("a", Decimal(1))))


@pytest.mark.parametrize("form", ["avro", "json-schema"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, order()),
        (Order, order(parent=order(note="x"), either=5, tags={"a": 1}, seen={1})),
        (Struct, Struct(1, "n")),
        (Model, MODEL),
        (Typed, {"id": 1, "note": "n"}),
        (list[Line], [Line("tea", Decimal(1))]),
    ],
    ids=["dataclass", "nested dataclass", "Struct", "pydantic", "TypedDict", "list"],
)
def test_values_of_a_type_fit_its_schema_and_come_back(kind: Any, value: Any, form: str) -> None:
    codec = codec_of(parse_any(*derived_schema(kind, form)))
    assert as_type(codec.decode(codec.encode(as_plain(value))), kind) == value


def test_a_typed_dict_that_may_lack_a_field_has_a_json_schema_only() -> None:
    codec = codec_of(parse_any(*derived_schema(PartlyTyped, "json-schema")))
    assert codec.decode(codec.encode({"id": 1})) == {"id": 1}
    with pytest.raises(TypeError, match=r"PartlyTyped may lack note.*json-schema"):
        derived_schema(PartlyTyped, "avro")


def test_defaults_are_in_the_schema() -> None:
    fields = {each["name"]: each for each in json.loads(derived_schema(Order, "avro")[1])["fields"]}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert fields["city"] == {"name": "city", "type": "string", "default": "York"}
    assert fields["tags"]["default"] == {}
    assert "default" not in fields["id"]
    assert fields["first"]["type"] == "State"


@pytest.mark.parametrize("form", ["avro", "json-schema"])
def test_a_type_with_one_more_field_with_a_default_is_a_compatible_version(form: str) -> None:
    old = dataclasses.make_dataclass("Bill", [("id", int)])
    new = dataclasses.make_dataclass("Bill", [("id", int), ("note", str, ""), ("city", str | None, None)])
    before, after = (parse_any(*derived_schema(kind, form)) for kind in (old, new))
    assert incompatibilities(after, before) == []


@pytest.mark.parametrize(
    ("kind", "form", "message"),
    [
        (dict[int, str], "avro", "no Avro schema is derived from Dict"),
        (Any, "avro", "no Avro schema is derived from Any"),
        (object, "avro", "no Avro schema is derived from Custom"),
        (Order, "protobuf", "avro or json-schema, not 'protobuf'"),
        (dataclasses.make_dataclass("Größe", [("a", int)]), "avro", "is not a name in Avro"),
    ],
)
def test_types_without_a_schema_are_refused(kind: Any, form: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        derived_schema(kind, form)
