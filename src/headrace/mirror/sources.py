"""The source clusters of all links, as this broker reaches them: one client for each link."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from headrace.mirror.source import SourceCluster
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.model.links import Link, LinkSync
from headrace.replication.transport import Transport

MakeTransport = Callable[[Link], Transport]


class Sources:
    def __init__(self, make_transport: MakeTransport, random: Random, own_id: BrokerId) -> None:
        self._make_transport = make_transport
        self._random = random
        self._own_id = own_id
        self._open: dict[str, SourceCluster] = {}
        self._replaced: list[SourceCluster] = []

    def of(self, link: Link) -> SourceCluster:
        """The client for a link; another one after a change of how the source is reached."""
        source = self._open.get(link.name)
        if source is None or _access(source.link) != _access(link):
            if source is not None:
                self._replaced.append(source)
            source = self._open[link.name] = self.new(link)
        return source

    def new(self, link: Link) -> SourceCluster:
        """A client of its own, which the caller closes."""
        return SourceCluster(link, self._make_transport(link), self._random, self._own_id)

    async def keep(self, image: ClusterImage) -> None:
        """Close the clients of links that were deleted, or are reached in another way now."""
        for name in self._open.keys() - image.links.keys():
            self._replaced.append(self._open.pop(name))
        replaced, self._replaced = self._replaced, []
        for source in replaced:
            await source.close()

    async def close(self) -> None:
        sources = (*self._open.values(), *self._replaced)
        self._open, self._replaced = {}, []
        for source in sources:
            await source.close()


def _access(link: Link) -> Link:
    """The part of a link that connections depend on."""
    return replace(
        link,
        topics=(),
        exclude=(),
        prefix="",
        is_paused=False,
        max_bytes_per_second=None,
        sync=LinkSync(),
        schemas_topic="",
        created_ms=0,
    )
