"""Calls of brokers to the leader of `__pipelines`."""

import msgspec

from headrace.model.features import PIPELINES_LEVEL
from headrace.model.pipeline_report import DesiredState, PipelineReport, ReplayCommand
from headrace.replication.calls import Call


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
