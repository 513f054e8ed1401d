"""Errors of schemas, with the codes of Confluent's registry.

SchemaFault
├── InvalidSchema            42201  the text is no schema of its type
│   └── SchemaTooComplex     42201  checking it would take more steps than a request may
├── IncompatibleSchema       40901  an earlier version could not be read, or would not be
├── NotFoundSchema           404nn  no such subject, version or schema
└── RefusedSchema            422nn  not allowed now, or not as asked
"""

from headrace.model.errors import HeadraceError


class SchemaFault(HeadraceError):
    """A request about schemas that is refused."""

    status = 422
    code = 42201


class InvalidSchema(SchemaFault):
    """The text is not a valid schema of its type."""


class SchemaTooComplex(InvalidSchema):
    """The schema is nested too deep, or comparing it takes too many steps."""


class IncompatibleSchema(SchemaFault):
    status = 409
    code = 40901


class SubjectNotFound(SchemaFault):
    status = 404
    code = 40401


class VersionNotFound(SchemaFault):
    status = 404
    code = 40402


class SchemaNotFound(SchemaFault):
    status = 404
    code = 40403


class SubjectSoftDeleted(SchemaFault):
    status = 404
    code = 40404


class SubjectNotSoftDeleted(SchemaFault):
    status = 404
    code = 40405


class VersionSoftDeleted(SchemaFault):
    status = 404
    code = 40406


class VersionNotSoftDeleted(SchemaFault):
    status = 404
    code = 40407


class ConfigNotFound(SchemaFault):
    status = 404
    code = 40408


class ModeNotFound(SchemaFault):
    status = 404
    code = 40409


class InvalidVersion(SchemaFault):
    code = 42202


class InvalidLevel(SchemaFault):
    code = 42203


class InvalidMode(SchemaFault):
    code = 42204


class OperationNotPermitted(SchemaFault):
    code = 42205


class ReferenceExists(SchemaFault):
    code = 42206


class IdDoesNotMatch(SchemaFault):
    code = 42207


class InvalidSubject(SchemaFault):
    code = 42208


class SchemaTooLarge(SchemaFault):
    code = 42209


class ContextNotEmpty(SchemaFault):
    code = 42211


class OutcomeUnknown(SchemaFault):
    """The leader changed during a request that cannot be repeated."""

    status = 500
    code = 50003


class RegistryBusy(SchemaFault):
    """More large schemas wait to be checked than may, or they cannot be checked now."""

    status = 503
    code = 50301


class SchemasChanged(SchemaFault):
    """The versions of a subject are others than those that a schema was compared with: it is compared again."""

    status = 500
    code = 50001
