"""The .proto files that Confluent's registry and clients bring, and `google.protobuf` does not. Pure."""

from collections.abc import Iterable
from functools import cache
from typing import Final

from headrace.schemas.protobuf.parser import parse_proto
from headrace.schemas.protobuf.resolution import ProtobufSchema, resolve_proto
from headrace.schemas.protobuf.syntax import ProtoFile

_DAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_MONTHS: Final = (
    *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER"),
    "DECEMBER",
)
_PERIODS: Final = ("DAY", "WEEK", "FORTNIGHT", "MONTH", "QUARTER", "HALF", "YEAR")


def _message(name: str, fields: str) -> str:
    """A message with fields that are numbered in their order."""
    parts = [each.strip() for each in fields.split(",")]
    return f"message {name} {{ {' '.join(f'{each} = {number};' for number, each in enumerate(parts, 1))} }}"


def _enum(name: str, unspecified: str, values: Iterable[str]) -> str:
    rest = " ".join(f"{each} = {number};" for number, each in enumerate(values, 1))
    return f"enum {name} {{ {unspecified} = 0; {rest} }}"


_OFFSET: Final = "google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9;"
_DATE_TIME: Final = (
    "message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; "
    f"int32 seconds = 6; int32 nanos = 7; oneof time_offset {{ {_OFFSET} }} }}"
)
_ADDRESS: Final = (
    "int32 revision, string region_code, string language_code, string postal_code, string sorting_code, "
    "string administrative_area, string locality, string sublocality, repeated string address_lines, "
    "repeated string recipients, string organization"
)
_GOOGLE: Final = {
    "calendar_period": _enum("CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED", _PERIODS),
    "color": _message("Color", "float red, float green, float blue, google.protobuf.FloatValue alpha"),
    "date": _message("Date", "int32 year, int32 month, int32 day"),
    "datetime": _DATE_TIME + _message("TimeZone", "string id, string version"),
    "dayofweek": _enum("DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", _DAYS),
    "decimal": _message("Decimal", "string value"),
    "expr": _message("Expr", "string expression, string title, string description, string location"),
    "fraction": _message("Fraction", "int64 numerator, int64 denominator"),
    "interval": _message("Interval", "google.protobuf.Timestamp start_time, google.protobuf.Timestamp end_time"),
    "latlng": _message("LatLng", "double latitude, double longitude"),
    "money": _message("Money", "string currency_code, int64 units, int32 nanos"),
    "month": _enum("Month", "MONTH_UNSPECIFIED", _MONTHS),
    "postal_address": _message("PostalAddress", _ADDRESS),
    "quaternion": _message("Quaternion", "double x, double y, double z, double w"),
    "timeofday": _message("TimeOfDay", "int32 hours, int32 minutes, int32 seconds, int32 nanos"),
}
_WELL_KNOWN: Final = "".join(
    f'import "google/protobuf/{each}.proto"; ' for each in ("duration", "timestamp", "wrappers")
)
_TEXTS: Final = {
    "confluent/type/decimal.proto": "package confluent.type; "
    + _message("Decimal", "bytes value, uint32 precision, int32 scale"),
    **{f"google/type/{name}.proto": f"package google.type; {_WELL_KNOWN}{text}" for name, text in _GOOGLE.items()},
}


def provided_files(files: Iterable[ProtoFile]) -> dict[str, ProtobufSchema]:
    """The provided files that others import, by name."""
    names = {name for file in files for _, name in file.imports}
    return {name: _parsed(name) for name in sorted(names & _TEXTS.keys())}


@cache
def _parsed(name: str) -> ProtobufSchema:
    return resolve_proto(parse_proto(f'syntax = "proto3"; {_TEXTS[name]}'), {})
