"""Why data of one schema cannot be read with another: the kind of change, where, and in words. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One change that breaks readers."""

    kind: str
    """The name that Confluent's registry uses, such as TYPE_MISMATCH."""
    path: str
    """Where in the reader's schema: a JSON pointer, or `#/properties/name`, or a Protobuf path."""
    description: str
    detail: str = ""
    """The name or type that is missing."""

    def __str__(self) -> str:
        """As Confluent's registry writes it in `messages`."""
        detail = f", additionalInfo:'{self.detail}'" if self.detail else ""
        return f"{{errorType:'{self.kind}', description:'{self.description}'{detail}}}"
