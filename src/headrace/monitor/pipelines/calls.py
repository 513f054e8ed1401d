"""Calls of brokers to the leader of `__pipelines`."""

import msgspec

from headrace.model.features import PIPELINES_LEVEL
from headrace.model.pipeline_report import DesiredState, PipelineReport, ReplayCommand
from headrace.queues.rpc import Call


class PipelineCall(Call, frozen=True):
    """Base of the calls about pipelines."""

    level = PIPELINES_LEVEL


class ReportPipeline(PipelineCall, frozen=True):
    name: str
    report: PipelineReport


class ListPipelines(PipelineCall, frozen=True):
    """All of them, without graphs, logs and history."""


class DescribePipeline(PipelineCall, frozen=True):
    name: str


class StartOrStopPipeline(PipelineCall, frozen=True):
    name: str
    desired: DesiredState


class ReplayPipeline(PipelineCall, frozen=True):
    name: str
    command: ReplayCommand


class ForgetPipeline(PipelineCall, frozen=True):
    name: str


AnyPipelineCall = (
    ReportPipeline | ListPipelines | DescribePipeline | StartOrStopPipeline | ReplayPipeline | ForgetPipeline
)
decode_pipeline_call = msgspec.msgpack.Decoder(AnyPipelineCall).decode

_TAGS = tuple(
    msgspec.msgpack.encode(kind.__name__)
    for kind in (
        ReportPipeline,
        ListPipelines,
        DescribePipeline,
        StartOrStopPipeline,
        ReplayPipeline,
        ForgetPipeline,
    )
)


def is_pipeline_call(call: bytes) -> bool:
    """Whether the name of a call, behind the byte with the number of its fields, is one of these."""
    return call.startswith(_TAGS, 1)
