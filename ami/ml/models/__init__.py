"""Algorithms, pipelines, and the processing services that run them."""

from ami.ml.models.algorithm import Algorithm, AlgorithmCategoryMap
from ami.ml.models.alias import AlgorithmAlias, PipelineAlias
from ami.ml.models.pipeline import Pipeline, ProjectPipelineConfig
from ami.ml.models.service import ProcessingService

__all__ = [
    "Algorithm",
    "AlgorithmAlias",
    "AlgorithmCategoryMap",
    "Pipeline",
    "PipelineAlias",
    "ProcessingService",
    "ProjectPipelineConfig",
]
