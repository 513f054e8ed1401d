"""Settings of compatibility and modes: global, of a context, of a subject."""

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.schemas.compatibility import COMPATIBILITY_LEVELS, DEFAULT_LEVEL
from headrace.schemas.errors import ConfigNotFound, InvalidLevel, InvalidMode, ModeNotFound
from headrace.schemas.machine import IMPORTS, MODES
from headrace.schemas.operations.table import (
    ALTER_REGISTRY,
    ALTER_SUBJECT,
    LIST_SUBJECTS,
    READ_SUBJECT,
    RegistryCall,
    operation,
)
from headrace.schemas.requests import RegistryReply, RegistryRequest, reply
from headrace.schemas.stored import StoredConfig
from headrace.schemas.subjects import name_of

POLICIES = ("STRICT", "LENIENT")


class ConfigBody(msgspec.Struct, rename="camel"):
    """Settings to change; null clears one."""

    compatibility: str | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_level: str | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_policy: str | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_group: str | msgspec.UnsetType | None = msgspec.UNSET
    normalize: bool | msgspec.UnsetType | None = msgspec.UNSET
    validate_fields: bool | msgspec.UnsetType | None = msgspec.UNSET
    alias: str | msgspec.UnsetType | None = msgspec.UNSET
    default_metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    override_metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    default_rule_set: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    override_rule_set: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET

    def changes(self) -> dict[str, Any]:
        """The settings that are given. Raises `InvalidLevel`."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not msgspec.UNSET}
        short = given.pop("compatibility", None)
        if "compatibility_level" in given or self.compatibility is not msgspec.UNSET:
            level = (short or given.get("compatibility_level") or "").upper() or None
            if level is not None and level not in COMPATIBILITY_LEVELS:
                levels = ", ".join(each.lower() for each in COMPATIBILITY_LEVELS)
                raise InvalidLevel(f"Invalid compatibility level. Valid values are {levels}")
            given["compatibility_level"] = level
        if (policy := given.get("compatibility_policy")) is not None:
            given["compatibility_policy"] = policy.upper()
            if policy.upper() not in POLICIES:
                raise InvalidLevel(f"Invalid compatibility policy. Valid values are {', '.join(POLICIES)}")
        return given


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
    given, scope = call.request.read(ConfigBody).changes(), call.scope
    before = call.machine.config(scope) or StoredConfig()
    config = msgspec.structs.replace(before, subject=scope, **given)
    is_empty = config == StoredConfig(subject=scope)
    await call.commit(lambda: call.machine.set_config(scope, None if is_empty else config))
    answer = _config_answer(msgspec.structs.replace(StoredConfig(), **given))
    level = answer.pop("compatibilityLevel", None)
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


def begins_import(request: RegistryRequest) -> bool:
    """Whether a request to set a mode lets clients choose ids, which are those of all subjects of a context."""
    return request.read(ModeBody).mode.upper() in IMPORTS


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
