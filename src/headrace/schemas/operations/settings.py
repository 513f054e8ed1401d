"""Settings of compatibility and modes: global, of a context, of a subject."""

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.schemas.compatibility import COMPATIBILITY_LEVELS, DEFAULT_LEVEL
from headrace.schemas.errors import ConfigNotFound, InvalidLevel, InvalidMode, ModeNotFound
from headrace.schemas.machine import MODES
from headrace.schemas.operations.table import (
    ALTER_REGISTRY,
    ALTER_SUBJECT,
    LIST_SUBJECTS,
    READ_SUBJECT,
    RegistryCall,
    operation,
)
from headrace.schemas.requests import RegistryReply, reply
from headrace.schemas.stored import StoredConfig
from headrace.schemas.subjects import name_of

POLICIES = ("STRICT", "LENIENT")


class ConfigBody(msgspec.Struct, rename="camel"):
    compatibility: str | None = None
    compatibility_level: str | None = None
    compatibility_policy: str | None = None
    compatibility_group: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    alias: str | None = None
    default_metadata: dict[str, Any] | None = None
    override_metadata: dict[str, Any] | None = None
    default_rule_set: dict[str, Any] | None = None
    override_rule_set: dict[str, Any] | None = None


class ModeBody(msgspec.Struct):
    mode: str = ""


def _config_answer(config: StoredConfig) -> dict[str, Any]:
    names = dict(zip(StoredConfig.__struct_fields__, StoredConfig.__struct_encode_fields__, strict=True))
    return {names[name]: value for name, value in msgspec.structs.asdict(config).items() if value is not None}


@operation("GET", "/config", needs=LIST_SUBJECTS)
async def show_config(call: RegistryCall) -> RegistryReply:
    config = call.machine.config(call.scope)
    if config is None and call.scope is not None and not call.request.flag("defaultToGlobal"):
        raise ConfigNotFound(f"Subject '{call.scope}' does not have subject-level compatibility configured")
    if config is None or config.compatibility_level is None:
        config = msgspec.structs.replace(config or StoredConfig(), compatibility_level=DEFAULT_LEVEL)
    return reply(_config_answer(msgspec.structs.replace(config, subject=None)))


@operation("GET", "/config/{subject}", needs=READ_SUBJECT)
async def show_subject_config(call: RegistryCall) -> RegistryReply:
    scope = call.scope or ""
    config = (
        call.machine.effective_config(scope) if call.request.flag("defaultToGlobal") else call.machine.config(scope)
    )
    if config is None:
        raise ConfigNotFound(f"Subject '{scope}' does not have subject-level compatibility configured")
    return reply(_config_answer(msgspec.structs.replace(config, subject=None)))


@operation("PUT", "/config", needs=ALTER_REGISTRY)
async def set_config(call: RegistryCall) -> RegistryReply:
    return await _set_config(call)


@operation("PUT", "/config/{subject}", needs=ALTER_SUBJECT)
async def set_subject_config(call: RegistryCall) -> RegistryReply:
    return await _set_config(call)


async def _set_config(call: RegistryCall) -> RegistryReply:
    body, scope = call.request.read(ConfigBody), call.scope
    level = (body.compatibility or body.compatibility_level or "").upper() or None
    if level is not None and level not in COMPATIBILITY_LEVELS:
        raise InvalidLevel(
            f"Invalid compatibility level. Valid values are {', '.join(each.lower() for each in COMPATIBILITY_LEVELS)}"
        )
    policy = None if body.compatibility_policy is None else body.compatibility_policy.upper()
    if policy is not None and policy not in POLICIES:
        raise InvalidLevel(f"Invalid compatibility policy. Valid values are {', '.join(POLICIES)}")
    given = {
        name: value
        for name, value in msgspec.structs.asdict(body).items()
        if value is not None and name not in ("compatibility", "compatibility_level")
    }
    if level is not None:
        given["compatibility_level"] = level
    if policy is not None:
        given["compatibility_policy"] = policy
    before = call.machine.config(scope) or StoredConfig()
    config = msgspec.structs.replace(before, subject=scope, **given)
    await call.commit(lambda: call.machine.set_config(scope, config))
    answer = _config_answer(msgspec.structs.replace(StoredConfig(), **given))
    answer.pop("compatibilityLevel", None)
    return reply({**({"compatibility": level} if level else {}), **answer})


@operation("DELETE", "/config", needs=ALTER_REGISTRY)
async def delete_config(call: RegistryCall) -> RegistryReply:
    before = call.machine.config(call.scope) or StoredConfig(compatibility_level=DEFAULT_LEVEL)
    scope = call.scope
    await call.commit(lambda: call.machine.set_config(scope, None))
    return reply(_config_answer(msgspec.structs.replace(before, subject=None)))


@operation("DELETE", "/config/{subject}", needs=ALTER_SUBJECT)
async def delete_subject_config(call: RegistryCall) -> RegistryReply:
    scope = call.scope
    before = call.machine.config(scope)
    if before is None and call.request.is_repeat:
        return reply({})
    if before is None:
        raise ConfigNotFound(f"Subject '{scope}' does not have subject-level compatibility configured")
    await call.commit(lambda: call.machine.set_config(scope, None))
    return reply(_config_answer(msgspec.structs.replace(before, subject=None)))


@operation("GET", "/mode", needs=LIST_SUBJECTS)
async def show_mode(call: RegistryCall) -> RegistryReply:
    return reply({"mode": call.machine.mode(call.scope) or call.machine.mode(None) or "READWRITE"})


@operation("GET", "/mode/{subject}", needs=READ_SUBJECT)
async def show_subject_mode(call: RegistryCall) -> RegistryReply:
    scope = call.scope or ""
    mode = call.machine.effective_mode(scope) if call.request.flag("defaultToGlobal") else call.machine.mode(scope)
    if mode is None:
        raise ModeNotFound(f"Subject '{scope}' does not have subject-level mode configured")
    return reply({"mode": mode})


@operation("PUT", "/mode", needs=ALTER_REGISTRY)
async def set_mode(call: RegistryCall) -> RegistryReply:
    return await _set_mode(call)


@operation("PUT", "/mode/{subject}", needs=ALTER_SUBJECT)
async def set_subject_mode(call: RegistryCall) -> RegistryReply:
    return await _set_mode(call)


async def _set_mode(call: RegistryCall) -> RegistryReply:
    mode, scope, force = call.request.read(ModeBody).mode.upper(), call.scope, call.request.flag("force")
    if mode not in MODES:
        raise InvalidMode(f"Invalid mode. Valid values are {', '.join(each.lower() for each in MODES)}")
    if mode == "FORWARD" and scope is not None:
        raise InvalidMode("Forward mode only supported on global level")
    await call.commit(lambda: call.machine.set_mode(scope, mode, force=force))
    return reply({"mode": mode})


@operation("DELETE", "/mode", needs=ALTER_REGISTRY)
async def delete_mode(call: RegistryCall) -> RegistryReply:
    scope = call.scope
    before = call.machine.mode(scope) or "READWRITE"
    await call.commit(_deletion_of_mode(call, scope))
    return reply({"mode": before})


@operation("DELETE", "/mode/{subject}", needs=ALTER_SUBJECT)
async def delete_subject_mode(call: RegistryCall) -> RegistryReply:
    scope = call.scope
    before = call.machine.mode(scope)
    if before is None and call.request.is_repeat:
        return reply({"mode": call.machine.effective_mode(scope or "")})
    if before is None:
        raise ModeNotFound(f"Subject '{scope}' does not have subject-level mode configured")
    await call.commit(_deletion_of_mode(call, scope))
    return reply({"mode": before})


def _deletion_of_mode(call: RegistryCall, scope: str | None) -> Callable[[], Outcome[InternalRecord, None]]:
    """With `recursive`, the modes of all subjects of a context, too."""
    is_context = scope is None or not name_of(scope)
    if call.request.flag("recursive") and is_context:
        return lambda: call.machine.delete_modes(scope)
    return lambda: call.machine.set_mode(scope, None, force=True)
