"""KEDA ScaledObjects: documented fields only, the wait target as the threshold, and time for a worker to drain."""

import copy
import json
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from ami.topology.errors import TopologyError
from ami.topology.kubernetes import render, scaled_objects
from ami.topology.kubernetes.processes import Choices
from ami.topology.topology import load

SCHEMA = json.loads(Path(__file__).with_name("keda.schema.json").read_text())
jsonschema.validators.validator_for(SCHEMA).check_schema(SCHEMA)
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
SLOW = {"ANTENNA_SLOW_ENABLED": "1"}
ROWS = load(SLOW).workloads
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.queue)


def validate(found):
    """As ``jsonschema.validate``, which checks the schema itself each time as well."""
    if error := jsonschema.exceptions.best_match(VALIDATOR.iter_errors(found)):
        raise error


def parsed(environ=SLOW, **choices):
    text = render.stream(load(environ), environ, Choices(**choices))
    return list(yaml.load_all(text, yaml.CSafeLoader))


def rendered(environ=SLOW, **choices):
    return [x for x in parsed(environ, **choices) if x["apiVersion"].startswith("keda.sh/")]


def scaled(queue, environ=SLOW, **choices):
    unchanged = environ is SLOW and not choices
    objects = [x for x in (KEDA if unchanged else rendered(environ, **choices)) if x["kind"] == "ScaledObject"]
    return next(x["spec"] for x in objects if x["spec"]["triggers"][0]["metadata"]["queueName"] == queue)


def trigger(spec, name):
    return next(trigger for trigger in spec["triggers"] if trigger["name"] == name)


OBJECTS = parsed()
KEDA = [x for x in OBJECTS if x["apiVersion"].startswith("keda.sh/")]


@pytest.mark.parametrize("manifest", KEDA, ids=lambda manifest: manifest["metadata"]["name"])
def test_manifest_has_only_documented_keda_fields(manifest):
    validate(manifest)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "minReplicas"), 1),
        (("spec", "minReplicaCount"), "1"),
        (("spec", "scaleTargetRef", "deploymentName"), "x"),
        (("spec", "triggers", 1, "metadata", "mode"), "OldestMessageAge"),
        (("spec", "triggers", 1, "metadata", "protocol"), "amqp"),
        (("spec", "triggers", 0, "metadata", "queueLength"), "20"),
        (("spec", "triggers", 0, "metadata", "value"), 20),
        (("spec", "triggers", 0, "metadata", "value"), "0"),
        (("spec", "triggers", 0, "metricType"), "Utilization"),
    ],
)
def test_undocumented_keda_field_is_refused_by_the_schema(path, value):
    """The check above can fail: KEDA's RabbitMQ scaler has no message age, for example."""
    wrong = copy.deepcopy(next(x for x in KEDA if x["kind"] == "ScaledObject"))
    *way, last = path
    target = wrong
    for step in way:
        target = target[step]
    target[last] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(wrong)


@each_row
def test_scaling_behaviour_is_valid_in_kubernetes_schema(row):
    """KEDA copies it into a HorizontalPodAutoscaler."""
    spec = scaled(row.queue)
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "x"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": spec["scaleTargetRef"]["name"]},
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }
    kubernetes_validate.validate(autoscaler, "1.37", strict=True)


@each_row
def test_queue_is_scaled_by_depth_and_by_wait_target(row):
    spec = scaled(row.queue)
    depth, wait = trigger(spec, "depth"), trigger(spec, "wait")
    assert depth["metadata"]["mode"] == "QueueLength"
    assert depth["metricType"] == "AverageValue", "shared among the workers"
    assert depth["metadata"]["excludeUnacknowledged"] == "false", "a busy worker is not idle"
    assert wait["metadata"]["mode"] == "ExpectedQueueConsumptionTime"
    assert wait["metricType"] == "Value", "a time is not shared"
    assert float(wait["metadata"]["value"]) == row.wait_target_seconds
    assert wait["metadata"]["excludeUnacknowledged"] == "true", "running messages do not wait"
    assert all(t["metadata"]["queueName"] == row.queue for t in spec["triggers"])


@each_row
def test_scale_target_is_a_deployment_without_replicas(row):
    name = scaled(row.queue)["scaleTargetRef"]["name"]
    deployment = next(x for x in OBJECTS if (x["kind"], x["metadata"]["name"]) == ("Deployment", name))
    assert "replicas" not in deployment["spec"], "or each apply would overwrite KEDA's number"
    assert row.queue in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


@each_row
def test_every_queue_has_at_least_one_worker_by_default(row):
    spec = scaled(row.queue)
    assert spec["minReplicaCount"] == row.replicas == 1
    assert spec["maxReplicaCount"] == 4


@each_row
def test_scale_down_waits_for_the_stop_grace_period(row):
    spec = scaled(row.queue)
    shrink = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert spec["cooldownPeriod"] >= row.stop_grace_period_seconds
    assert shrink["stabilizationWindowSeconds"] >= row.stop_grace_period_seconds
    assert shrink["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": row.stop_grace_period_seconds}]


def test_scale_down_periods_are_capped_at_kubernetes_maximum():
    behavior = scaled("antenna-ingest", {"ANTENNA_INGEST_STOP_GRACE_PERIOD_SECONDS": "86400"})["advanced"][
        "horizontalPodAutoscalerConfig"
    ]["behavior"]["scaleDown"]
    assert behavior["stabilizationWindowSeconds"] == 3600
    assert behavior["policies"][0]["periodSeconds"] == 1800


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 16 * 600),
        ({"ANTENNA_INGEST_CONCURRENCY": "4"}, 4 * 600),
        ({"ANTENNA_INGEST_WAIT_TARGET_SECONDS": "60"}, 16 * 60),
        ({"ANTENNA_INGEST_WAIT_TARGET_SECONDS": "0.5"}, 16),
    ],
)
def test_depth_target_is_concurrency_times_wait_target(environ, expected):
    row = load(environ).workload("antenna-ingest")
    assert scaled_objects.depth_per_worker(row) == expected
    spec = scaled("antenna-ingest", environ)
    assert trigger(spec, "depth")["metadata"]["value"] == str(expected)
    assert float(trigger(spec, "wait")["metadata"]["value"]) == row.wait_target_seconds


@pytest.mark.parametrize(
    ("chosen", "ingest", "interactive"),
    [({}, 4, 4), ({"": 10}, 10, 10), ({"antenna-ingest": 12}, 12, 4), ({"": 2, "antenna-ingest": 12}, 12, 2)],
)
def test_max_replicas_option_sets_the_maximum(chosen, ingest, interactive):
    assert scaled("antenna-ingest", max_replicas=chosen)["maxReplicaCount"] == ingest
    assert scaled("antenna-interactive", max_replicas=chosen)["maxReplicaCount"] == interactive


def test_table_replicas_are_the_minimum_and_raise_the_maximum():
    spec = scaled("antenna-ingest", {"ANTENNA_INGEST_REPLICAS": "6"})
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (6, 6)
    with pytest.raises(TopologyError, match="--max-replicas is 2 for antenna-ingest, whose minimum is 6"):
        scaled("antenna-ingest", {"ANTENNA_INGEST_REPLICAS": "6"}, max_replicas={"": 2})


@pytest.mark.parametrize("keda", [True, False])
@pytest.mark.parametrize("key", ["HOUSEKEEPING", "INTERACTIVE", "FALLBACK"])
def test_queue_with_short_wait_target_keeps_a_worker(key, keda):
    environ = {f"ANTENNA_{key}_REPLICAS": "0"}
    with pytest.raises(TopologyError, match=f"ANTENNA_{key}_REPLICAS is 0"):
        rendered(environ, keda=keda)


def test_queue_with_long_wait_target_may_scale_to_zero():
    assert scaled("antenna-ingest", {"ANTENNA_INGEST_REPLICAS": "0"})["minReplicaCount"] == 0


def test_without_keda_deployments_have_the_table_replicas():
    environ = {"ANTENNA_INGEST_REPLICAS": "3"}
    objects = parsed(environ, keda=False)
    assert not [x for x in objects if x["apiVersion"].startswith("keda.sh/")]
    ingest = next(x for x in objects if (x["kind"], x["metadata"]["name"]) == ("Deployment", "antenna-worker-ingest"))
    assert ingest["spec"]["replicas"] == 3


def test_keda_reads_the_broker_url_from_the_secret():
    authentication = next(x for x in KEDA if x["kind"] == "TriggerAuthentication")
    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": "host", "name": "antenna", "key": "RABBITMQ_MANAGEMENT_URL"}
    ]
    triggers = [t for row in ROWS for t in scaled(row.queue, vhost="insects")["triggers"]]
    assert {t["authenticationRef"]["name"] for t in triggers} == {authentication["metadata"]["name"]}
    assert {t["metadata"]["vhostName"] for t in triggers} == {"insects"}


def test_wait_target_of_zero_is_refused_with_keda():
    with pytest.raises(TopologyError, match="ANTENNA_INGEST_WAIT_TARGET_SECONDS is 0"):
        rendered({"ANTENNA_INGEST_WAIT_TARGET_SECONDS": "0"})
