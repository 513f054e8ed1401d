"""SASLprep (RFC 4013): one spelling for names and passwords that look the same. Pure."""

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str:
    """The prepared form, with unassigned code points prohibited. Raises ValueError if there is none."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibits(each) for each in prepared for prohibits in _PROHIBITED):
        raise ValueError("contains a character that SASLprep prohibits")
    if any(map(stringprep.in_table_d1, prepared)):
        _check_right_to_left(prepared)
    return prepared


def _check_right_to_left(text: str) -> None:
    if any(map(stringprep.in_table_d2, text)):
        raise ValueError("mixes letters written from left to right with letters written from right to left")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ValueError("starts or ends with a character without a direction in text written from right to left")


def is_prepared(text: str) -> bool:
    """Whether clients that apply SASLprep and clients that do not (most of Kafka's) send the same bytes."""
    try:
        return saslprep(text) == text
    except ValueError:
        return False
