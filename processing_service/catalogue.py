"""The service's algorithms, with their category maps, and its pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from ami.ml.schemas import (
    AlgorithmCategoryMapResponse,
    AlgorithmConfigResponse,
    AlgorithmReference,
    PipelineConfigResponse,
    PipelineStage,
    ProcessingServiceInfoResponse,
)
from processing_service.classifier import BINARY_LABELS, SPECIES_LABELS

SHEET_MOTHS = "sheet-moths"
CONSTANT = "constant"


def _category_map(labels: Sequence[str], ranks: Sequence[str | None], text: str) -> AlgorithmCategoryMapResponse:
    data = [
        {"index": index, "label": label, "taxon_rank": rank}
        for index, (label, rank) in enumerate(zip(labels, ranks, strict=True))
    ]
    return AlgorithmCategoryMapResponse(data=data, labels=list(labels), version="1", description=text)


THRESHOLD_DETECTOR = AlgorithmConfigResponse(
    name="Threshold Detector",
    key="threshold-detector",
    task_type="detection",
    description="Boxes around what differs from the lit cloth beside it, is large enough and has sharp edges.",
)
MOTH_BINARY = AlgorithmConfigResponse(
    name="Moth Binary",
    key="moth-binary",
    task_type="classification",
    description="Tells a moth from other things on the sheet by size and outline.",
    category_map=_category_map(BINARY_LABELS, ("ORDER", None), "Moth or not"),
)
SIZE_COLOUR_SPECIES = AlgorithmConfigResponse(
    name="Size and Colour Species",
    key="size-colour-species",
    task_type="classification",
    description="The species whose reference size and colour is nearest.",
    category_map=_category_map(SPECIES_LABELS, ["SPECIES"] * len(SPECIES_LABELS), "Seven European moths"),
)
CONSTANT_DETECTOR = AlgorithmConfigResponse(
    name="Constant Detector",
    key="constant-detector",
    task_type="detection",
    description="One fixed box on every picture.",
)
CONSTANT_CLASSIFIER = AlgorithmConfigResponse(
    name="Constant classifier",
    key="constant-classifier",
    task_type="classification",
    description="The label Moth with the score 0.9, always.",
    category_map=_category_map(("Moth",), ("ORDER",), "One class"),
)

PIPELINES: dict[str, PipelineConfigResponse] = {
    SHEET_MOTHS: PipelineConfigResponse(
        name="Sheet Moths",
        slug=SHEET_MOTHS,
        version=1,
        description="Finds insects on a lit sheet and names them by size and colour.",
        algorithms=[THRESHOLD_DETECTOR, MOTH_BINARY, SIZE_COLOUR_SPECIES],
        stages=[
            PipelineStage(key="detect", name="Detect", description="Find insects on the sheet"),
            PipelineStage(key="classify", name="Classify", description="Moth or not, then the species"),
        ],
    ),
    CONSTANT: PipelineConfigResponse(
        name="Constant",
        slug=CONSTANT,
        version=1,
        description="The same box and label on every picture, for trying the way there and back.",
        algorithms=[CONSTANT_DETECTOR, CONSTANT_CLASSIFIER],
        stages=[PipelineStage(key="constant", name="Constant")],
    ),
}


def chosen_pipelines(slugs: Sequence[str]) -> list[PipelineConfigResponse]:
    """Return the pipelines of these slugs, all for no slug; `KeyError` with the remedy for an unknown one."""
    unknown = [slug for slug in slugs if slug not in PIPELINES]
    if unknown:
        raise KeyError(f"no pipeline {unknown[0]!r}; there are: {', '.join(PIPELINES)}")
    return [PIPELINES[slug] for slug in dict.fromkeys(slugs or PIPELINES)]


def info(pipelines: Sequence[PipelineConfigResponse]) -> ProcessingServiceInfoResponse:
    """Return the response of `GET /info`."""
    algorithms = {algorithm.key: algorithm for pipeline in pipelines for algorithm in pipeline.algorithms}
    return ProcessingServiceInfoResponse(
        name="Antenna reference processing service",
        description="Finds insects on a lit sheet and names them by size and colour.",
        pipelines=list(pipelines),
        algorithms=list(algorithms.values()),
    )


def reference(algorithm: AlgorithmConfigResponse) -> AlgorithmReference:
    """Return the short form for results."""
    return AlgorithmReference(name=algorithm.name, key=algorithm.key)
