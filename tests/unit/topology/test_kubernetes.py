"""The manifests: valid for Kubernetes's own schemas, equal to the table, and without secrets."""

import copy
import re

import kubernetes_validate
import pytest
import yaml

from ami.topology import app
from ami.topology.errors import TopologyError
from ami.topology.kubernetes import render
from ami.topology.kubernetes.objects import component, name_of
from ami.topology.kubernetes.processes import Choices
from ami.topology.topology import load, override_name
from tests.support import forked_python

SLOW = {"ANTENNA_SLOW_ENABLED": "1"}
ALL = load(SLOW)
VERSIONS = ("1.32", "1.37")
CHOICES = Choices(image="example.org/antenna:1.0", host="insects.example.org")


def manifests(environ=SLOW, choices=CHOICES):
    """Every object, parsed from the rendered files."""
    files = render.render(load(environ), environ, choices)
    return [document for text in files.values() for document in yaml.load_all(text, yaml.CSafeLoader)]


def one(kind, name, objects=None):
    return next(x for x in objects or OBJECTS if (x["kind"], x["metadata"]["name"]) == (kind, name))


def container_of(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]


def environment_of(deployment):
    return {entry["name"]: entry["value"] for entry in container_of(deployment)["env"]}


def worker(queue, environ=SLOW, choices=CHOICES):
    row = load(environ).workload(queue)
    return one("Deployment", name_of(component(row)), manifests(environ, choices))


OBJECTS = manifests()
NATIVE = [manifest for manifest in OBJECTS if not manifest["apiVersion"].startswith("keda.sh/")]
DEPLOYMENTS = [manifest for manifest in OBJECTS if manifest["kind"] == "Deployment"]
PODS = [manifest for manifest in OBJECTS if manifest["kind"] in ("Deployment", "Job")]


def identity(manifest):
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


each_pod = pytest.mark.parametrize("manifest", PODS, ids=identity)
each_row = pytest.mark.parametrize("row", ALL.workloads, ids=lambda row: row.queue)


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid_in_kubernetes_strict_schema(version):
    for manifest in NATIVE:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_unknown_field_is_refused_by_the_schema():
    """The check above can fail."""
    for manifest in {each["kind"]: each for each in NATIVE}.values():
        wrong = copy.deepcopy(manifest)
        wrong.setdefault("spec", {})["replica"] = 1
        with pytest.raises(kubernetes_validate.ValidationError, match="replica|spec"):
            kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_misplaced_container_field_is_refused_by_the_schema():
    wrong = copy.deepcopy(one("Deployment", "antenna-web"))
    container_of(wrong)["terminationGracePeriodSeconds"] = 30
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriodSeconds"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@each_row
def test_worker_deployment_follows_its_row(row):
    deployment = one("Deployment", name_of(component(row)))
    container = container_of(deployment)
    assert container["args"] == ["python", "-m", "config.waiting", "python", "-m", "ami.topology", "worker", row.queue]
    assert container["resources"] == {
        "requests": {"cpu": "1000m", "memory": f"{row.memory_limit_kib}Ki"},
        "limits": {"memory": f"{row.memory_limit_kib}Ki"},
    }, "memory is reserved in full and cores are not limited"
    spec = deployment["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == row.stop_grace_period_seconds
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert environment_of(deployment)[override_name(row, "container_memory_kib")] == str(row.memory_limit_kib)


def test_each_enabled_queue_has_one_worker_deployment():
    names = {f"antenna-worker-{row.key.lower()}" for row in ALL.workloads}
    assert {x["metadata"]["name"] for x in DEPLOYMENTS} == names | {"antenna-web", "antenna-flower", "antenna-beat"}
    off = {x["metadata"]["name"] for x in manifests({}) if x["kind"] == "Deployment"}
    assert "antenna-worker-ingest" in off
    assert "antenna-worker-slow" not in off


def test_every_name_is_a_valid_dns_label():
    for manifest in OBJECTS:
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", manifest["metadata"]["name"])


def test_names_are_unique_and_invalid_names_are_refused():
    identities = [identity(manifest) for manifest in OBJECTS]
    assert len(identities) == len(set(identities))
    with pytest.raises(TopologyError, match="is not a name in Kubernetes"):
        name_of("worker_ingest")


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget", "Service"])
def test_every_selector_matches_the_pods_of_one_deployment(kind):
    pods = {x["metadata"]["name"]: x["spec"]["template"]["metadata"]["labels"] for x in DEPLOYMENTS}
    for manifest in (x for x in OBJECTS if x["kind"] == kind):
        selector = manifest["spec"]["selector"]
        wanted = selector.get("matchLabels", selector).items()
        found = [name for name, labels in pods.items() if wanted <= labels.items()]
        assert found == [manifest["metadata"]["name"]]


@each_pod
def test_pod_meets_the_restricted_security_standard(manifest):
    spec = manifest["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [container["securityContext"] for container in spec["containers"]] == [
        {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    ]


@each_pod
def test_writable_folders_are_bounded_volumes_of_the_pod(manifest):
    spec = manifest["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    for path in ("/tmp", "/state"):
        assert volumes[mounts[path]["name"]]["emptyDir"]["sizeLimit"]
    assert mounts["/data"]["readOnly"] is True, "without shared files a write would be lost with the pod"


def test_named_claim_is_mounted_at_data_in_every_pod():
    objects = manifests(choices=Choices(files="antenna-files"))
    for manifest in (x for x in objects if x["kind"] in ("Deployment", "Job")):
        spec = manifest["spec"]["template"]["spec"]
        assert {"name": "files", "persistentVolumeClaim": {"claimName": "antenna-files"}} in spec["volumes"]
        assert {"name": "files", "mountPath": "/data"} in spec["containers"][0]["volumeMounts"]


@each_row
def test_governor_state_is_on_a_volume(row):
    deployment = one("Deployment", name_of(component(row)))
    state = environment_of(deployment)["GOVERNOR_STATE_DIR"]
    assert state in {mount["mountPath"] for mount in container_of(deployment)["volumeMounts"]}


@each_row
def test_worker_probes_check_progress_and_allow_for_a_slow_broker(row):
    container = container_of(one("Deployment", name_of(component(row))))
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["exec"]["command"] == ["fresh", "/tmp/worker-pulse", "60"]
    assert environment_of(one("Deployment", name_of(component(row))))["ANTENNA_PULSE_FILE"] == "/tmp/worker-pulse"
    assert seconds(container["livenessProbe"]) == 300
    assert seconds(container["startupProbe"]) == 1800
    waits = int(one("ConfigMap", "antenna")["data"]["ANTENNA_WAIT_SECONDS"])
    assert 120 < waits < seconds(container["startupProbe"]), "the process logs its own timeout first"


def seconds(probe):
    return probe["periodSeconds"] * probe["failureThreshold"]


def test_beat_has_one_replica_and_the_old_one_stops_first():
    beat = one("Deployment", "antenna-beat")
    assert beat["spec"]["replicas"] == 1
    assert beat["spec"]["strategy"] == {"type": "Recreate"}
    assert container_of(beat)["args"][-1] == "beat"
    assert container_of(beat)["livenessProbe"]["exec"]["command"] == ["fresh", "/tmp/beat-tick", "60"]
    assert environment_of(beat)["ANTENNA_BEAT_TICK_FILE"] == "/tmp/beat-tick"


def test_web_probe_sends_an_allowed_host():
    probe = container_of(one("Deployment", "antenna-web"))["livenessProbe"]["httpGet"]
    headers = {header["name"]: header["value"] for header in probe["httpHeaders"]}
    assert headers == {"Host": "insects.example.org", "X-Forwarded-Proto": "https"}
    assert probe["path"] == "/livez"
    assert one("ConfigMap", "antenna")["data"]["DJANGO_ALLOWED_HOSTS"].split(",")[0] == headers["Host"]
    port = one("Service", "antenna-web")["spec"]["ports"][0]
    assert (port["port"], port["targetPort"]) == (8000, "http")


def test_allowed_hosts_of_the_environment_follow_the_probed_host():
    data = one("ConfigMap", "antenna", manifests({"DJANGO_ALLOWED_HOSTS": "a.example.org, b.example.org"}))["data"]
    assert data["DJANGO_ALLOWED_HOSTS"] == "insects.example.org,antenna-web,a.example.org,b.example.org"


def test_setup_runs_once_per_version():
    first, again = (next(x for x in manifests() if x["kind"] == "Job") for _ in range(2))
    assert first == again
    other = next(x for x in manifests(choices=Choices(image="example.org/antenna:1.1")) if x["kind"] == "Job")
    assert first["metadata"]["name"] != other["metadata"]["name"], "a Job is immutable, so a new image needs a new one"
    assert container_of(first)["args"] == ["setup"]
    assert first["spec"]["ttlSecondsAfterFinished"] > 0
    assert first["spec"]["backoffLimit"] > 0


def test_no_disruption_budget_blocks_the_drain_of_a_single_replica():
    budgets = [x["spec"] for x in OBJECTS if x["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == len(ALL.workloads) + 1, "every workload, and web"
    assert all(budget["maxUnavailable"] == 1 and "minAvailable" not in budget for budget in budgets)


def test_pods_restart_when_the_configuration_changes():
    def digest(environ):
        return worker("antenna-ingest", environ)["spec"]["template"]["metadata"]["annotations"]["antenna.configuration"]

    assert digest({}) == digest({"UNRELATED": "x"})
    assert digest({}) != digest({"ANTENNA_LOG_LEVEL": "DEBUG"})


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("STOP_GRACE_PERIOD_SECONDS", "900", ("template", "spec", "terminationGracePeriodSeconds"), 900),
        ("CPU_SHARES", "512", ("cpu",), "500m"),
        ("CPU_SHARES", "2", ("cpu",), "1m"),
    ],
)
def test_an_override_changes_the_manifest(name, value, field, expected):
    deployment = worker("antenna-ingest", {f"ANTENNA_INGEST_{name}": value})
    if field == ("cpu",):
        assert container_of(deployment)["resources"]["requests"]["cpu"] == expected
    else:
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == expected


def test_overridden_concurrency_is_passed_with_its_memory_limit():
    assert "ANTENNA_INGEST_CONCURRENCY" not in environment_of(worker("antenna-ingest", {}))
    deployment = worker("antenna-ingest", {"ANTENNA_INGEST_CONCURRENCY": "32"})
    memory = load({"ANTENNA_INGEST_CONCURRENCY": "32"}).workload("antenna-ingest").memory_limit_kib
    assert environment_of(deployment)["ANTENNA_INGEST_CONCURRENCY"] == "32"
    assert container_of(deployment)["resources"]["limits"]["memory"] == f"{memory}Ki"
    assert "ANTENNA_INGEST_CONCURRENCY" not in environment_of(
        worker("antenna-housekeeping", {"ANTENNA_INGEST_CONCURRENCY": "32"})
    )


def test_core_limit_is_rendered_only_if_set():
    resources = container_of(worker("antenna-ingest", {"ANTENNA_INGEST_CPUS": "0.5"}))["resources"]
    assert resources["limits"]["cpu"] == "500m"
    assert resources["requests"]["cpu"] == "500m", "no more than the limit"


def test_governor_settings_reach_all_workers_or_one_queue():
    environ = {"MEMORY_GOVERNOR": "dry-run", "ANTENNA_INGEST_MEMORY_THROTTLE_THRESHOLD": "70"}
    ingest, other = (environment_of(worker(queue, environ)) for queue in ("antenna-ingest", "antenna"))
    assert ingest["MEMORY_GOVERNOR"] == other["MEMORY_GOVERNOR"] == "dry-run"
    assert ingest["ANTENNA_INGEST_MEMORY_THROTTLE_THRESHOLD"] == "70"
    assert "ANTENNA_INGEST_MEMORY_THROTTLE_THRESHOLD" not in other


SECRETS = [each.name for each in app.shared() if each.secret]


@pytest.mark.parametrize("choices", [CHOICES, Choices(keda=False, namespace="")], ids=["keda", "fixed"])
def test_no_secret_of_the_environment_is_rendered(choices):
    environ = {name: f"amqp://user:canary-{name}@host" for name in SECRETS}
    environ |= {"FLOWER_BASIC_AUTH": "user:canary-flower", "RABBITMQ_PASSWORD": "canary-rabbitmq"}
    text = render.stream(load({}), environ, choices)
    assert "canary" not in text
    assert one("ConfigMap", "antenna", list(yaml.load_all(text, yaml.CSafeLoader)))["data"].keys().isdisjoint(environ)
    assert text.count("secretRef") == len(
        [x for x in yaml.load_all(text, yaml.CSafeLoader) if x["kind"] in ("Deployment", "Job")]
    )


def test_login_in_a_plain_url_is_refused_and_not_repeated():
    with pytest.raises(TopologyError, match="ANTENNA_S3_ENDPOINT_URL is a URL with a login") as refusal:
        manifests({"ANTENNA_S3_ENDPOINT_URL": "https://user:canary@objects.example.org"})
    assert "canary" not in str(refusal.value)


def test_all_documents_or_none_name_the_namespace():
    assert {x["metadata"].get("namespace") for x in OBJECTS if x["kind"] != "Namespace"} == {"antenna"}
    bare = manifests(choices=Choices(namespace=""))
    assert {x["metadata"].get("namespace") for x in bare} == {None}
    assert "Namespace" not in {x["kind"] for x in bare}


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"host": "https://x"}, "--host is 'https://x'"),
        ({"namespace": "Antenna_1"}, "--namespace is 'Antenna_1'"),
        ({"web_replicas": 0}, "--web-replicas is 0"),
    ],
)
def test_invalid_option_is_refused_in_one_sentence(choices, sentence):
    with pytest.raises(TopologyError, match=re.escape(sentence)):
        Choices(**choices)


def run(*arguments, **environ):
    command = ["-m", "ami.topology", "kubernetes", *arguments]
    return forked_python.run(command, env={"PATH": "/usr/bin:/bin", **environ})


@pytest.mark.processes
def test_written_manifests_pass_the_check_until_something_differs(tmp_path):
    folder = tmp_path / "manifests"
    assert run("--write", str(folder), ANTENNA_SLOW_ENABLED="1").returncode == 0
    assert {path.name for path in folder.iterdir()} >= {"namespace.yaml", "worker-slow.yaml", "scaling.yaml"}
    (folder / "own.yaml").write_text("# the operator's\n")
    assert run("--check", str(folder), ANTENNA_SLOW_ENABLED="1").returncode == 0
    differs = run("--check", str(folder))
    assert differs.returncode == 1
    assert "worker-slow.yaml is not what the topology renders" in differs.stderr
    assert run("--write", str(folder)).returncode == 0
    assert not (folder / "worker-slow.yaml").exists(), "the worker of a disabled queue is removed"
    assert (folder / "own.yaml").exists()
    assert run("--check", str(folder)).returncode == 0


@pytest.mark.processes
def test_stream_has_the_same_documents_as_the_files():
    printed = list(
        yaml.load_all(run("--image", CHOICES.image, "--host", CHOICES.host, **SLOW).stdout, yaml.CSafeLoader)
    )
    assert printed == OBJECTS
    assert printed[0]["kind"] == "Namespace", "the namespace comes first"


@pytest.mark.processes
def test_invalid_option_exits_2_with_one_sentence():
    done = run("--max-replicas", "antena-ingest=8")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Did you mean 'antenna-ingest'?" in done.stderr
