"""Parses a .proto file. Pure.

By hand, because the parser that is written for Python takes half a second for a thousand lines, and protoc reads files
only. Options and the methods of services are
stored as text: they matter to generated code only.
"""

from bisect import bisect_right
from itertools import accumulate

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.protobuf.syntax import (
    MAX_FIELD_NUMBER,
    SCALARS,
    NumberRange,
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    ProtoMethod,
    ProtoOption,
    ProtoService,
)
from headrace.schemas.protobuf.tokens import ProtoToken, proto_tokens, unquoted

MAX_NESTING = 64
_MAX_ENUM = 2**31 - 1
_LABELS = ("optional", "required", "repeated")
_KEYS = SCALARS - {"double", "float", "bytes"}


def parse_proto(text: str) -> ProtoFile:
    """Parse a file. Types that it uses are not looked up: see `resolution.py`. Raises `InvalidSchema`."""
    return _ProtoParser(proto_tokens(text)).file()


class _ReservedNumbers:
    """Ranges of numbers, in order."""

    def __init__(self, ranges: list[NumberRange]) -> None:
        self._ranges = sorted(ranges)
        self._ends = [*accumulate((last for _, last in self._ranges), max)]

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._ranges, (number, MAX_FIELD_NUMBER)) - 1
        return place >= 0 and self._ends[place] >= number


class _ProtoParser:
    def __init__(self, tokens: list[ProtoToken]) -> None:
        self._tokens = tokens
        self._at = 0
        self._file = ProtoFile()

    # -- tokens

    @property
    def _next(self) -> ProtoToken:
        return self._tokens[self._at]

    def _take(self) -> ProtoToken:
        token = self._tokens[self._at]
        if token.kind == "end":
            raise self._wrong("the file ends in the middle of a definition")
        self._at += 1
        return token

    def _wrong(self, why: str) -> InvalidSchema:
        return InvalidSchema(f"line {self._next.line}: {why}")

    def _is(self, text: str) -> bool:
        return self._next.text == text and self._next.kind != "string"

    def _skip(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise self._wrong(f"{text!r} is expected, not {self._next.text[:40]!r}")

    def _name(self, *, is_type: bool = False) -> str:
        token = self._take()
        if token.kind != "name" or ("." in token.text and not is_type):
            self._at -= 1
            raise self._wrong(f"a name is expected, not {token.text[:40]!r}")
        return token.text

    def _integer(self) -> int:
        sign = -1 if self._skip("-") else 1
        token = self._take()
        try:
            is_octal = len(token.text) > 1 and token.text.startswith("0") and token.text.isdecimal()
            return sign * (int(token.text, 8) if is_octal else int(token.text, 0))
        except ValueError:
            self._at -= 1
            raise self._wrong(f"a whole number is expected, not {token.text[:40]!r}") from None

    def _string(self) -> str:
        pieces = []
        while self._next.kind == "string":
            pieces.append(unquoted(self._take().text))
        if not pieces:
            raise self._wrong(f"a string is expected, not {self._next.text[:40]!r}")
        try:
            return b"".join(pieces).decode()
        except UnicodeDecodeError:
            raise self._wrong("a string is not UTF-8") from None

    # -- the file

    def file(self) -> ProtoFile:
        file = self._file
        if self._is("syntax") or self._is("edition"):
            file.is_edition = self._take().text == "edition"
            self._expect("=")
            file.syntax = self._string()
            self._expect(";")
            if not file.is_edition and file.syntax not in ("proto2", "proto3"):
                raise self._wrong(f"the syntax {file.syntax[:40]!r} is neither proto2 nor proto3")
        while self._next.kind != "end":
            self._statement(file)
        return file

    def _statement(self, file: ProtoFile) -> None:
        if self._skip(";"):
            return
        word = self._name(is_type=True)
        match word:
            case "package":
                file.package = self._name(is_type=True)
                self._expect(";")
            case "import":
                kind = self._take().text if self._next.kind == "name" else ""
                file.imports.append((kind, self._string()))
                self._expect(";")
            case "option":
                file.options.append(self._option(";"))
            case "message":
                file.messages.append(self._message(0))
            case "enum":
                file.enums.append(self._enum())
            case "extend":
                file.extends.append(self._extend(file.messages, 0))
            case "service":
                file.services.append(self._service())
            case _:
                self._at -= 1
                raise self._wrong(f"{word[:40]!r} begins no definition")

    # -- options

    def _option(self, end: str) -> ProtoOption:
        """An option up to its end, which is taken if it is a semicolon."""
        pieces = []
        while not self._is("="):
            pieces.append(self._take().text)
        self._expect("=")
        value = self._value()
        if end == ";":
            self._expect(";")
        return "".join(pieces), value

    def _value(self) -> str:
        if self._is("{"):
            return self._aggregate()
        if self._next.kind == "string":
            pieces = []
            while self._next.kind == "string":
                pieces.append(self._take().text)
            return " ".join(pieces)
        sign = self._take().text if self._next.text in ("-", "+") else ""
        return sign + self._take().text

    def _aggregate(self) -> str:
        """The text between balanced braces."""
        pieces, depth = [], 0
        while True:
            token = self._take()
            pieces.append(token.text)
            depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "mark" else 0
            if not depth:
                return " ".join(pieces)

    def _bracketed_options(self) -> list[ProtoOption]:
        found: list[ProtoOption] = []
        if self._skip("["):
            while True:
                found.append(self._option(","))
                if not self._skip(","):
                    break
            self._expect("]")
        return found

    # -- messages

    def _message(self, depth: int) -> ProtoMessage:
        message = ProtoMessage(self._name())
        self._message_body(message, depth)
        return message

    def _message_body(self, message: ProtoMessage, depth: int) -> None:
        if depth > MAX_NESTING:
            raise self._wrong(f"messages are nested more than {MAX_NESTING} deep")
        self._expect("{")
        while not self._skip("}"):
            self._member(message, depth)
        self._check_message(message)

    def _member(self, message: ProtoMessage, depth: int) -> None:
        if self._skip(";"):
            return
        following = self._tokens[self._at + 1] if self._next.kind == "name" else self._next
        match self._next.text:
            case "message" if self._is_definition():
                self._at += 1
                message.messages.append(self._message(depth + 1))
            case "enum" if self._is_definition():
                self._at += 1
                message.enums.append(self._enum())
            case "oneof" if self._is_definition():
                self._at += 1
                self._oneof(message, depth)
            case "extend" if self._is_definition():
                self._at += 1
                message.extends.append(self._extend(message.messages, depth))
            case "option" if self._is_option():
                self._at += 1
                message.options.append(self._option(";"))
            case "reserved" if following.kind in ("number", "string") or following.text == "-":
                self._at += 1
                self._reserved(message.reserved_ranges, message.reserved_names, MAX_FIELD_NUMBER)
            case "extensions" if following.kind == "number":
                self._at += 1
                message.extension_ranges += self._ranges(MAX_FIELD_NUMBER)
                self._bracketed_options()
                self._expect(";")
            case _:
                message.fields.append(self._field(message.messages, depth))

    def _is_definition(self) -> bool:
        """Whether a keyword is followed by a name and a brace."""
        return self._tokens[self._at + 1].kind == "name" and self._tokens[self._at + 2].text == "{"

    def _is_option(self) -> bool:
        """Whether `option` begins an option, and is not the type of a field: that has a number and its name last."""
        after, equals = self._tokens[self._at + 1], self._tokens[self._at + 2]
        return after.text == "(" or (after.kind == "name" and equals.text == "=")

    def _oneof(self, message: ProtoMessage, depth: int) -> None:
        name = self._name()
        message.oneofs.append(name)
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._is("option") and self._is_option():
                self._at += 1
                self._option(";")
                continue
            field = self._field(message.messages, depth)
            if field.label or field.is_map:
                raise self._wrong(f"the field {field.name} of a oneof has a label, or is a map")
            field.oneof = name
            message.fields.append(field)

    def _field(self, messages: list[ProtoMessage], depth: int) -> ProtoField:
        """A field; the message of a group is added to `messages`."""
        label = ""
        if self._next.text in _LABELS and self._tokens[self._at + 1].kind == "name":
            label = self._take().text
        if self._is("map") and self._tokens[self._at + 1].text == "<":
            return self._map(label)
        type_ = self._name(is_type=True)
        name = self._name()
        self._expect("=")
        number = self._field_number(name)
        options = self._bracketed_options()
        if type_ == "group" and self._is("{"):
            group = ProtoMessage(name, is_group=True)
            self._message_body(group, depth + 1)
            messages.append(group)
            return ProtoField(name.lower(), number, name, label, options=options)
        self._expect(";")
        return ProtoField(name, number, type_, label, options=options)

    def _map(self, label: str) -> ProtoField:
        self._at += 1
        self._expect("<")
        key = self._name()
        if key not in _KEYS or label:
            raise self._wrong(f"a map with keys of the type {key[:40]}, or with a label")
        self._expect(",")
        value = self._name(is_type=True)
        self._expect(">")
        name = self._name()
        self._expect("=")
        number = self._field_number(name)
        options = self._bracketed_options()
        self._expect(";")
        return ProtoField(name, number, value, key=key, options=options)

    def _field_number(self, name: str) -> int:
        number = self._integer()
        if not 1 <= number <= MAX_FIELD_NUMBER or 19_000 <= number <= 19_999:
            raise self._wrong(f"the number {number} of the field {name} is not one that fields have")
        return number

    def _reserved(self, ranges: list[NumberRange], names: list[str], most: int) -> None:
        if self._next.kind == "string":
            names.append(self._string())
            while self._skip(","):
                names.append(self._string())
        else:
            ranges += self._ranges(most)
        self._expect(";")

    def _ranges(self, most: int) -> list[NumberRange]:
        found = []
        while True:
            first = last = self._integer()
            if self._skip("to"):
                last = most if self._skip("max") else self._integer()
            found.append((first, last))
            if not self._skip(","):
                return found

    def _extend(self, messages: list[ProtoMessage], depth: int) -> ProtoExtend:
        extend = ProtoExtend(self._name(is_type=True))
        self._expect("{")
        while not self._skip("}"):
            if not self._skip(";"):
                extend.fields.append(self._field(messages, depth))
        return extend

    def _check_message(self, message: ProtoMessage) -> None:
        numbers: dict[int, str] = {}
        names: set[str] = set()
        reserved = _ReservedNumbers(message.reserved_ranges)
        reserved_names = set(message.reserved_names)
        for field in message.fields:
            if field.number in numbers:
                raise self._wrong(f"{message.name} has the number {field.number} twice")
            if field.name in names:
                raise self._wrong(f"{message.name} has the field {field.name} twice")
            if field.name in reserved_names or field.number in reserved:
                raise self._wrong(f"the field {field.name} of {message.name} is reserved")
            if field.label == "required" and self._file.syntax == "proto3":
                raise self._wrong(f"the field {field.name} is required, which proto3 does not have")
            numbers[field.number] = field.name
            names.add(field.name)

    # -- enums and services

    def _enum(self) -> ProtoEnum:
        enum = ProtoEnum(self._name())
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            following = self._tokens[self._at + 1]
            if self._is("option") and following.text != "=":
                self._at += 1
                enum.options.append(self._option(";"))
            elif self._is("reserved") and following.text != "=":
                self._at += 1
                self._reserved(enum.reserved_ranges, enum.reserved_names, _MAX_ENUM)
            else:
                name = self._name()
                self._expect("=")
                number = self._integer()
                enum.values.append((name, number, self._bracketed_options()))
                self._expect(";")
        self._check_enum(enum)
        return enum

    def _check_enum(self, enum: ProtoEnum) -> None:
        if not enum.values:
            raise self._wrong(f"the enum {enum.name} has no value")
        if self._file.syntax == "proto3" and enum.values[0][1] != 0:
            raise self._wrong(f"the first value of the enum {enum.name} is not 0, as proto3 needs it")
        names = [name for name, _, _ in enum.values]
        numbers = [number for _, number, _ in enum.values]
        if len(set(names)) < len(names):
            raise self._wrong(f"the enum {enum.name} has a name twice")
        if len(set(numbers)) < len(numbers) and not enum.allows_aliases:
            raise self._wrong(f"the enum {enum.name} has a number twice, without allow_alias")

    def _service(self) -> ProtoService:
        service = ProtoService(self._name())
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._skip("option"):
                service.options.append(self._option(";"))
            else:
                self._expect("rpc")
                service.methods.append(self._method())
        return service

    def _method(self) -> ProtoMethod:
        name = self._name()
        streams_requests, request = self._message_type()
        self._expect("returns")
        streams_responses, response = self._message_type()
        method = ProtoMethod(name, request, response, streams_requests, streams_responses)
        if self._skip("{"):
            while not self._skip("}"):
                if not self._skip(";"):
                    self._expect("option")
                    method.options.append(self._option(";"))
            self._skip(";")
        else:
            self._expect(";")
        return method

    def _message_type(self) -> tuple[bool, str]:
        self._expect("(")
        is_stream = self._is("stream") and self._tokens[self._at + 1].kind == "name"
        if is_stream:
            self._at += 1
        name = self._name(is_type=True)
        self._expect(")")
        return is_stream, name
