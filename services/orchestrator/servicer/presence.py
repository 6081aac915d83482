"""What this process says of itself: to gateways, to workers, and to whoever lists models."""

from collections.abc import Sequence

from services.orchestrator.core.effects import PublishedModel, PublishModels
from services.orchestrator.translate import (
    Portrait,
    hello_of,
    news_of,
    published_pipelines,
    sign_of_life,
)
from stagemesh.api.types.v1 import link_pb2
from stagemesh.pipeline import Mesh

__all__ = ["Presence"]


class Presence:
    """Who this orchestrator is, whether it drains, and what it can serve."""

    def __init__(self, portrait: Portrait, mesh: Mesh) -> None:
        self.draining = False
        self._portrait = portrait
        self._mesh = mesh
        self._pipelines = published_pipelines(mesh, _nothing_ready(mesh))

    def publish(self, effect: PublishModels) -> None:
        """Take note of which models can be served."""
        self._pipelines = published_pipelines(self._mesh, effect)

    def hello(self) -> link_pb2.Hello:
        """Open a link."""
        return hello_of(self._portrait, draining=self.draining, pipelines=self._pipelines)

    def news(self) -> link_pb2.Ping:
        """Tell a gateway how things are."""
        return news_of(draining=self.draining, pipelines=self._pipelines)

    def sign_of_life(self) -> link_pb2.Ping:
        """Tell a worker that its orchestrator is there."""
        return sign_of_life(draining=self.draining)

    def models(self) -> Sequence[link_pb2.PublishedPipeline]:
        """List the models of the mesh."""
        return self._pipelines

    def readiness(self) -> dict[str, bool]:
        """Tell of each model whether it can be served to new requests."""
        return {
            pipeline.model: pipeline.ready and not self.draining for pipeline in self._pipelines
        }


def _nothing_ready(mesh: Mesh) -> PublishModels:
    return PublishModels(
        models=tuple(
            PublishedModel(model=model, revision=pipeline.revision, ready=False)
            for pipeline in mesh.pipelines.values()
            for model in pipeline.model_names
        )
    )
