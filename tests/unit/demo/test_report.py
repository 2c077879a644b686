"""The report: one file, with what was found, where, when and by which version."""

import base64
import io
import os
import re
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from PIL import Image

from ami.main.models import Classification
from ami.ml.models import Pipeline, ProjectPipelineConfig
from demo import environment, report, report_pictures, waits_chart
from demo.checks import Check
from demo.figures import QueueFigures
from tests.support.place import ROOT
from tests.support.product import factories

pytestmark = pytest.mark.django_db
JOB = {"progress": {"stages": [{"name": "Process", "status": "SUCCESS", "progress": 1.0, "params": []}]}}


@pytest.fixture
def station(tmp_path, settings):
    settings.MEDIA_ROOT = str(tmp_path / "media")
    (tmp_path / "media/detections").mkdir(parents=True)
    return factories.station(factories.project(), name="Sheet <1>", time_zone="America/New_York")


def picture(path, size=(2400, 1600)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise(size, 60).convert("RGB").save(path, quality=95)


def written(station, tmp_path) -> str:
    return report.write(tmp_path, station.project, JOB, [], [], None, tmp_path / "media").read_text()


def found_on(station, tmp_path, number: int):
    name = f"captures/2026060122{number:02d}00.jpg"
    picture(tmp_path / "media" / name)
    picture(tmp_path / f"media/detections/{number}.jpg", (300, 300))
    capture = factories.capture(station, path=name)
    box = factories.detection(capture, [100, 200, 500, 600], path=f"detections/{number}.jpg")
    algorithm = factories.classifier()
    algorithm.version_name = "v2.1"
    algorithm.save()
    called = factories.taxon(f"Moth & {number}")
    Classification.objects.create(detection=box, algorithm=algorithm, taxon=called, score=0.873)


def test_boxes_and_crops_have_label_score_station_time_and_version(station, tmp_path):
    found_on(station, tmp_path, 1)
    pipeline = Pipeline.objects.create(name="Sheet moths", slug="sheet-moths", version=3)
    ProjectPipelineConfig.objects.create(project=station.project, pipeline=pipeline)
    pipeline.algorithms.add(factories.classifier())
    page = written(station, tmp_path)
    assert "<rect x='100' y='200' width='400' height='400'" in page
    assert page.count("Moth &amp; 1 87%") >= 2
    assert "Sheet &lt;1&gt;, 2026-06-01 18:00:00, 20260601220100.jpg: 1 found" in page
    crop = page.partition("class=crops>")[2]
    for text in ("Moth &amp; 1 87%", "Sheet &lt;1&gt;", "2026-06-01 18:00:00", "Name v2.1"):
        assert f"<span>{text}</span>" in crop
    versions = page.partition("Versions</h2>")[2]
    for text in ("Sheet moths 3", "Name v2.1", "Box 1", "Django", "celery"):
        assert text in versions


def test_page_is_one_file_of_bounded_size(station, tmp_path):
    for number in range(14):
        found_on(station, tmp_path, number)
    page = written(station, tmp_path)
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["index.html"]
    sources = re.findall(r"(?:src|href)='([^']{0,30})", page)
    assert len(sources) == 12 + 14
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert page.count("loading=lazy") == 14
    # Noise is the worst that a JPEG can be of.
    assert len(page) < 5 * 1024**2


def test_crop_without_a_classification_is_not_named(station, tmp_path):
    name = "captures/20260601220000.jpg"
    picture(tmp_path / "media" / name, (200, 100))
    picture(tmp_path / "media/detections/1.jpg", (30, 30))
    factories.detection(factories.capture(station, path=name), [1, 2, 30, 40], path="detections/1.jpg")
    assert "<span>not named</span>" in written(station, tmp_path)


def test_version_has_its_name_where_there_is_one():
    named = SimpleNamespace(name="Moths", version_name="2026-06", version=4)
    assert report.version_of(named.name, named.version_name, named.version) == "Moths 2026-06"
    assert report.version_of("Moths", "", 4) == "Moths 4"


def figures_of(queue: str, done: int, p50: float, p95: float) -> QueueFigures:
    return QueueFigures(queue, done, 0, 0, p50, p95, p95, "worker", 1.0)


def test_page_says_what_ran_then_waits_then_pictures(station, tmp_path):
    found_on(station, tmp_path, 1)
    waits = [figures_of("antenna-ingest", 9, 12.0, 1500.0), figures_of("antenna", 0, 0.0, 0.0)]
    checks = [Check("recall", True, "1"), Check("every crop exists", False, "0 of 1")]
    ran = [("when", "2026-11-28 12:00:00 to 12:01:00 UTC, 60 s")]
    page = report.write(tmp_path, station.project, JOB, checks, waits, None, tmp_path / "media", ran).read_text()
    order = ["12:01:00 UTC", "1 of 2 pass; fail: every crop exists", "class=chart", "Captures</h2>", "Checks</h2>"]
    assert sorted(order, key=page.index) == order
    chart = page.partition("class=chart")[2].partition("</svg>")[0]
    for text in ("12 ms, p95 1.5 s", "ran nothing", "all on one queue (README)", "17.3 s"):
        assert text in chart
    p95, p50, one = (int(width) for width in re.findall(r"<rect[^>]* width='(\d+)'", chart))
    assert p50 < p95 < one, "a longer wait is a longer bar"


def test_figure_for_one_queue_is_the_readmes():
    said = re.search(r"on one queue a quick task started after ([\d.]+) s \(p95\)", (ROOT / "README.md").read_text())
    assert said
    assert float(said[1]) * 1000 == waits_chart.ONE_QUEUE_P95_MS


def test_last_three_reports_are_kept(tmp_path):
    for number in range(6):
        environment.prepare(tmp_path)
        page = tmp_path / "report/index.html"
        page.parent.mkdir()
        page.write_text(str(number))
        os.utime(page, (1_790_000_000 + number * 60,) * 2)
    kept = [page.read_text(), *(each.read_text() for each in sorted((tmp_path / "reports").iterdir(), reverse=True))]
    assert kept == ["5", "4", "3"]


def test_second_demo_in_the_same_folder_is_refused(tmp_path):
    with ExitStack() as stack:
        environment.lock(tmp_path, stack)
        with ExitStack() as second, pytest.raises(environment.FolderInUse, match="runs already"):
            environment.lock(tmp_path, second)


def test_capture_with_16_bits_of_grey_is_shown_as_it_is():
    ramp = Image.new("I;16", (256, 8))
    ramp.putdata([x * 256 for x in range(256)] * 8)
    _, _, data = report_pictures._embedded(ramp, 256).partition(",")
    shown = Image.open(io.BytesIO(base64.b64decode(data)))
    assert all(abs(shown.getpixel((x, 4))[0] - x) < 8 for x in range(256))
