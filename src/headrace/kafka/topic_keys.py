"""Resolves topics of requests, which use names in older versions and ids in newer ones, against one cluster image."""

from typing import Any
from uuid import UUID

from headrace.model.errors import HeadraceError, UnknownPartition, UnknownTopic, UnknownTopicId
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, TopicImage


class TopicKeys:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def name_of(self, topic: Any) -> str | None:
        """Return the topic's name for an entry of a request; None for an unknown id."""
        name: str | None = getattr(topic, "name", None)
        if name is not None:
            return name
        found = self._by_id(topic.topic_id)
        return None if found is None else found.name

    def problem(self, topic: Any, index: int) -> HeadraceError | None:
        """Return the error if the partition does not exist, else None."""
        name: str | None = getattr(topic, "name", None)
        if name is not None:
            found = self._image.topics.get(TopicName(name))
            if found is None:
                return UnknownTopic(f"the topic {name} does not exist")
        else:
            found = self._by_id(topic.topic_id)
            if found is None:
                return UnknownTopicId(f"there is no topic with the id {topic.topic_id}")
        if not 0 <= index < len(found.partitions):
            return UnknownPartition(f"the topic {found.name} has no partition {index}")
        return None

    def fields(self, topic: Any) -> dict[str, Any]:
        """Return the fields that identify the topic in the answer, as in the request."""
        return {"name": getattr(topic, "name", ""), "topic_id": getattr(topic, "topic_id", None)}

    def by_name(self, name: str) -> dict[str, Any]:
        """Return the fields that identify a topic in an answer when the request did not name it."""
        found = self._image.topics.get(TopicName(name))
        return {"name": name, "topic_id": None if found is None else found.topic_id}

    def _by_id(self, topic_id: UUID | None) -> TopicImage | None:
        return None if topic_id is None else self._image.topic_by_id(topic_id)
