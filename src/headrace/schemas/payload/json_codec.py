"""Values of a JSON Schema, checked by `jsonschema`. Pure."""

from collections.abc import Iterable
from typing import Any, Final

import jsonschema
import msgspec
from jsonschema.validators import validator_for

from headrace.schemas.errors import InvalidSchema, SchemaTooComplex
from headrace.schemas.json_schema.document import JsonSchemaDocument, document_registry
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.frames import FIRST_MESSAGE, MessageIndexes
from headrace.schemas.payload.json_keywords import bounded, compiled_patterns, steps_left, without_dialect
from headrace.schemas.steps import StepLimit

STEPS: Final = 10_000
"""Steps of one check, and two more for each byte. A step takes a few microseconds."""
MAX_STEPS_OF_VALUE: Final = 500_000
"""Whatever its size: that is a second or two."""
_MAX_MESSAGE: Final = 300


class JsonSchemaCodec:
    """Encodes and decodes values of one schema as JSON. References are those of the document: nothing is fetched."""

    type = "JSON"

    def __init__(self, document: JsonSchemaDocument, *, allows_any_pattern: bool = False) -> None:
        value = without_dialect(document.value)
        others = {name: without_dialect(each) for name, each in document.references.items()}
        patterns = compiled_patterns([value, *others.values()], allows_any=allows_any_pattern)
        validator_class = bounded(validator_for(document.value, default=jsonschema.Draft7Validator), patterns)
        registry, _ = document_registry(value, others, document.draft)
        try:
            self._validator: Any = validator_class(value, registry=registry)
        except RecursionError:
            raise InvalidSchema("the schema is nested too deep") from None

    def place(self, name: str | None) -> MessageIndexes:
        return FIRST_MESSAGE

    def check(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> None:
        self.decode(body)

    def decode(self, body: bytes, indexes: MessageIndexes = FIRST_MESSAGE) -> Any:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise InvalidPayload(f"the value is not JSON: {error}") from None
        except RecursionError:
            raise InvalidPayload("the value is nested too deep") from None
        self._validate(value, len(body))
        return value

    def encode(self, value: Any, indexes: MessageIndexes = FIRST_MESSAGE) -> bytes:
        try:
            body = msgspec.json.encode(value)
        except (TypeError, ValueError) as error:
            raise InvalidPayload(f"the value cannot be written as JSON: {error}") from None
        except RecursionError:
            raise InvalidPayload("the value is nested too deep") from None
        self.decode(body)
        return body

    def _validate(self, value: Any, size: int) -> None:
        token = steps_left.set(StepLimit(min(STEPS + 2 * size, MAX_STEPS_OF_VALUE)))
        try:
            error = next(self._validator.iter_errors(value), None)
        except RecursionError:
            raise InvalidPayload("the value is nested too deep") from None
        except SchemaTooComplex:
            raise InvalidPayload("checking the value by its schema takes too many steps") from None
        finally:
            steps_left.reset(token)
        if error is not None:
            raise InvalidPayload(_shortened(error.message), _path(error.absolute_path))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE // 2] + " … " + text[-_MAX_MESSAGE // 2 :]


def _path(parts: Iterable[str | int]) -> str:
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each[:100]}" for each in parts)
    return text.removeprefix(".")
