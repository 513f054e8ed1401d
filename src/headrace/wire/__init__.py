"""A small blocking client of the Kafka protocol, for what librdkafka does not offer: record batches as bytes, and
transactions that one process begins and another ends.

    with Cluster("localhost:9092") as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.produce({("orders", 0): batch})
        found = cluster.fetch("orders", 0, offset=0)
        ends = cluster.list_offsets([("orders", 0), ("orders", 1)])

    producer = cluster.init_producer_id("etl-0", timeout_ms=600_000)     # in a worker
    cluster.produce({("out", 0): transactional_batch}, transactional_id="etl-0")
    cluster.end_txn("etl-0", producer, committed=True)                   # in the driver, can be repeated

    alice = Credentials(user="alice", password="…", ca_file="ca.pem")    # by default those of the environment
    Cluster("broker.example.org:9093", credentials=alice)

It depends on neither Spark nor Arrow. It finds leaders and coordinators, follows them when they move, and retries
retriable errors for a bounded time. It works with Headrace and with Apache Kafka 2.8 and later.
"""

from headrace.config.credentials import NO_CREDENTIALS, Credentials
from headrace.protocol.fetch_response import AbortedRange, FetchedRecords
from headrace.wire.brokers import BrokerNode, ClusterInfo, LogDir, Reassignment, Replica
from headrace.wire.cluster import Cluster
from headrace.wire.connection import Timeouts
from headrace.wire.errors import (
    PASSING,
    AuthenticationFailed,
    BrokerUnreachable,
    ErrorCode,
    NotKafka,
    OffsetGone,
    ProducerFenced,
    Refused,
    TimedOut,
    TlsFailed,
    TopicNotFound,
    TransactionLost,
    Unready,
    Unsupported,
    WireError,
)
from headrace.wire.features import NO_FEATURE, Feature
from headrace.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, OffsetAt
from headrace.wire.groups import GroupInfo
from headrace.wire.produce import ResumedTransaction
from headrace.wire.router import Partition, PartitionInfo, Topic
from headrace.wire.settings import ConfigResource, SettingInForce
from headrace.wire.share_groups import ShareGroupInfo, ShareGroupOffset, ShareMember
from headrace.wire.transactions import TransactionInfo

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_CREDENTIALS",
    "NO_FEATURE",
    "PASSING",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "AbortedRange",
    "AuthenticationFailed",
    "BrokerNode",
    "BrokerUnreachable",
    "Cluster",
    "ClusterInfo",
    "ConfigResource",
    "Credentials",
    "ErrorCode",
    "Feature",
    "FetchedRecords",
    "GroupInfo",
    "LogDir",
    "NotKafka",
    "OffsetAt",
    "OffsetGone",
    "Partition",
    "PartitionInfo",
    "ProducerFenced",
    "Reassignment",
    "Refused",
    "Replica",
    "ResumedTransaction",
    "SettingInForce",
    "ShareGroupInfo",
    "ShareGroupOffset",
    "ShareMember",
    "TimedOut",
    "Timeouts",
    "TlsFailed",
    "Topic",
    "TopicNotFound",
    "TransactionInfo",
    "TransactionLost",
    "Unready",
    "Unsupported",
    "WireError",
]
