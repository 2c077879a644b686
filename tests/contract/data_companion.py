"""The origin's data companion in a process of its own: registers its pipelines, then works until it is stopped.

Its own client code talks to the API; torch is a stand-in, and its models find one box and the first of three classes.
``python -m tests.contract.data_companion SLUG PROJECT`` with the checkout on PYTHONPATH.
"""

import logging
import sys
from importlib import import_module
from typing import Any

from tests.contract import stubs

LIBRARIES = (
    *("torch", "torchvision", "timm", "sqlalchemy", "sqlalchemy_utils", "alembic", "sentry_sdk", "structlog"),
    *("imagesize", "orjson", "typer", "dateutil", "pandas", "plotly", "aiosqlite", "psycopg2", "gradio"),
)
SPECIES = {0: "Idia aemula", 1: "Idia lubricalis", 2: "Idia americalis"}
LABELS = {"moth": {0: "moth", 1: "nonmoth"}}


def stub_models() -> None:
    """Replace what would load weights and run a network."""
    classification = import_module("trapdata.api.models.classification")
    detector = import_module("trapdata.api.models.localization").APIMothDetector
    classifier = classification.APIMothClassifier

    def start(self: Any, *_: Any, **settings: Any) -> None:
        vars(self).update({name: value for name, value in settings.items() if name not in ("db_path",)})
        binary = isinstance(self, classification.MothClassifierBinary)
        self.category_map = {} if isinstance(self, detector) else LABELS["moth"] if binary else SPECIES
        self.num_classes = len(self.category_map)

    def classes(self: Any, batch: Any) -> stubs.Tensor:
        return stubs.tensor([[3.0, *[1.0] * (self.num_classes - 1)] for _ in batch])

    import_module("trapdata.ml.models.base").InferenceBaseClass.__init__ = start
    detector.predict_batch = lambda self, images: list(images)
    detector.post_process_batch = lambda self, images: [[[8.0, 6.0, 60.0, 44.0]] for _ in images]
    for known in (classifier, *all_subclasses(classifier)):
        known.get_transforms = lambda self: lambda crop: stubs.tensor([0.0])
        known.predict_batch = classes


def all_subclasses(known: type) -> list[Any]:
    return [each for below in known.__subclasses__() for each in (below, *all_subclasses(below))]


def main() -> None:
    slug, project = sys.argv[1], int(sys.argv[2])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    print("stand-ins:", ", ".join(stubs.install(LIBRARIES, always=["trapdata.db"])), flush=True)
    stub_models()
    worker = import_module("trapdata.antenna.worker")
    worker.SLEEP_TIME_SECONDS = 1
    settings = import_module("trapdata.settings").read_settings()
    import_module("trapdata.antenna.registration").register_pipelines([project], "Companion", settings)
    worker.run_worker([slug])


if __name__ == "__main__":
    main()
