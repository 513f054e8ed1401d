"""Tests of compatibility: nothing is registered."""

import msgspec

from headrace.schemas.compatibility import CompatibilityLevel
from headrace.schemas.machine import SubjectState
from headrace.schemas.operations.table import READ_SUBJECT, RegistryCall, operation
from headrace.schemas.operations.versions import SchemaBody, comparable, level_of, parsed_for
from headrace.schemas.requests import RegistryReply, reply
from headrace.schemas.stored import StoredSchema


@operation("POST", "/compatibility/subjects/{subject}/versions/{version}", needs=READ_SUBJECT)
async def test_with_version(call: RegistryCall) -> RegistryReply:
    """Compare with one version, by the level of the subject."""
    return await _test(call, [call.machine.version(call.read_subject, call.version)], is_single=True)


@operation("POST", "/compatibility/subjects/{subject}/versions", needs=READ_SUBJECT)
async def test_with_all(call: RegistryCall) -> RegistryReply:
    """Compare with the versions that a registration would be compared with."""
    return await _test(call, [*call.machine.versions(call.read_subject).values()], is_single=False)


async def _test(call: RegistryCall, versions: list[StoredSchema], *, is_single: bool) -> RegistryReply:
    subject, machine = call.read_subject, call.machine
    wanted = call.request.read(SchemaBody).stored(subject)
    config = machine.effective_config(subject)
    await parsed_for(call, msgspec.structs.replace(wanted, id=0))
    seen = SubjectState({each.version: each for each in versions}, 0)
    level: CompatibilityLevel = level_of(config)
    verdict = await call.checker.compare(
        machine,
        level,
        wanted,
        versions if is_single else comparable(seen, wanted, config),
        is_lenient=config.compatibility_policy == "LENIENT",
    )
    answer: dict[str, object] = {"is_compatible": verdict.is_compatible}
    if call.request.flag("verbose"):
        answer["messages"] = list(verdict.messages)
    return reply(answer)
