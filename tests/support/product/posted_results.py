"""A posted result and a posted error of a processing service."""

ALGORITHM = {"name": "Constant Detector", "key": "constant-detector"}
RESULTS = {
    "pipeline": "constant",
    "total_time": 0.02,
    "source_images": [{"id": "123", "url": "http://minio:9000/b/123.jpg"}],
    "detections": [
        {
            "source_image_id": "123",
            "bbox": {"x1": 80, "y1": 60, "x2": 240, "y2": 180},
            "timestamp": "2026-01-01T22:00:00",
            "algorithm": ALGORITHM,
            "classifications": [
                {
                    "classification": "Moth",
                    "labels": ["Moth"],
                    "scores": [0.9],
                    "algorithm": ALGORITHM,
                    "terminal": True,
                    "timestamp": "2026-01-01T22:00:00",
                }
            ],
        }
    ],
}
ERROR = {"error": "image not found", "image_id": "124"}
