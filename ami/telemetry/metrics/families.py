"""Builds one metric with its samples, under its declared name, kind and labels."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from ami.topology.monitoring.metrics import Metric

Sample = tuple[Sequence[str], float | None]


def gauge(metric: Metric, samples: Iterable[Sample]) -> Family:
    """Return a gauge; a figure that is None is unknown, and left out."""
    family = GaugeMetricFamily(metric.name, metric.text, labels=metric.labels)
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, float(value))
    return family


def single(metric: Metric, value: float | None) -> Family:
    """Return a gauge without labels."""
    return gauge(metric, [((), value)])


def counter(metric: Metric, samples: Iterable[tuple[Sequence[str], int]]) -> Family:
    family = CounterMetricFamily(metric.name, metric.text, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def histogram(
    metric: Metric, bounds: Sequence[float], samples: Iterable[tuple[Sequence[str], Sequence[int], float]]
) -> Family:
    """Return a histogram; a sample is (labels, a cumulative count per bound and one for all, the sum of seconds)."""
    names = [floatToGoString(float(bound)) for bound in (*bounds, float("inf"))]
    family = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
    for labels, cumulative, total in samples:
        family.add_metric(labels, list(zip(names, map(float, cumulative), strict=True)), total)
    return family
