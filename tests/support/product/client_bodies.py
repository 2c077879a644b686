"""Request bodies as real clients send them, independent of the product's own schemas."""

from collections.abc import Sequence
from typing import Any

#: Without a zone, as real clients write it.
TIME = "2026-01-01T22:00:00"
DETECTOR = {"name": "Contract Detector", "key": "contract-detector"}
CLASSIFIER = {"name": "Contract Classifier", "key": "contract-classifier"}
LABELS = ["Moth", "Not a moth"]


def pipeline_config(slug: str) -> dict[str, Any]:
    """Return a PipelineConfigResponse with its own detector and classifier."""
    classes = [{"index": index, "label": label, "taxon_rank": "SPECIES"} for index, label in enumerate(LABELS)]
    return {
        "name": f"Pipeline {slug}",
        "slug": slug,
        "version": 1,
        "description": "finds the same in every picture",
        "algorithms": [
            {**of(DETECTOR, slug), "task_type": "localization", "version": 1, "version_name": "1.0"},
            {
                **of(CLASSIFIER, slug),
                "task_type": "classification",
                "version": 1,
                "category_map": {"data": classes, "labels": LABELS, "version": "1", "description": None},
            },
        ],
        "stages": [{"key": "detect", "name": "Detect", "params": [{"name": "Threshold", "key": "threshold"}]}],
    }


def of(algorithm: dict[str, str], slug: str) -> dict[str, str]:
    """Return an AlgorithmReference of one pipeline."""
    return {"name": f"{algorithm['name']} {slug}", "key": f"{algorithm['key']}-{slug}"}


def results(slug: str, image_ids: Sequence[str]) -> dict[str, Any]:
    """Return a PipelineResultsResponse with one detection on each image."""
    return {
        "pipeline": slug,
        "total_time": 0.02,
        "source_images": [{"id": pk, "url": "http://minio:9000/b/1.jpg"} for pk in image_ids],
        "detections": [_detection(slug, pk) for pk in image_ids],
        "algorithms": {},
        "errors": None,
    }


def _detection(slug: str, image_id: str) -> dict[str, Any]:
    return {
        "source_image_id": image_id,
        "bbox": {"x1": 10.0, "y1": 10.0, "x2": 60.0, "y2": 50.0},
        "inference_time": 0.01,
        "timestamp": TIME,
        "algorithm": of(DETECTOR, slug),
        "crop_image_url": None,
        "classifications": [
            {
                "classification": "Moth",
                "labels": LABELS,
                "scores": [0.9, 0.1],
                "logits": [2.2, 0.0],
                "inference_time": 0.001,
                "algorithm": of(CLASSIFIER, slug),
                "terminal": True,
                "timestamp": TIME,
            }
        ],
    }
