"""pytest-celery's whole of broker, results and workers, around the containers of a deployment that is there already."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from ami.celery.app import AntennaCelery
from config.settings.brokers import transport_options
from tests.support.celery_suite.containers import WORKERS, Broker, Results
from tests.support.celery_suite.vendor import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestBackend,
    CeleryTestSetup,
    CeleryTestWorker,
    CeleryWorkerCluster,
    RabbitMQTestBroker,
)
from tests.support.containers.deployment import Deployment
from tests.support.containers.engine import client


class Setup(CeleryTestSetup):
    """pytest-celery's, with this project's application to publish from."""

    @classmethod
    def create_setup_app(cls, celery_setup_config: dict[str, Any], celery_setup_app_name: str) -> AntennaCelery:
        app = AntennaCelery(celery_setup_app_name, set_as_current=False)
        app.config_from_object("django.conf:settings", namespace="CELERY")
        url = celery_setup_config["broker_url"]
        also = {"broker_read_url": url, "broker_write_url": url, "broker_transport_options": transport_options(url)}
        app.conf.update(celery_setup_config, **also)
        return app


@contextmanager
def setup_of(deployment: Deployment) -> Iterator[Setup]:
    """Give the deployment to pytest-celery, every node of it ready and answering."""
    variables = deployment.variables
    broker = Broker(deployment, "rabbitmq", variables["CELERY_BROKER_URL"], deployment.broker_url)
    results = Results(deployment, "redis", variables["REDIS_URL"], deployment.redis_url)
    brokers = CeleryBrokerCluster(RabbitMQTestBroker(broker))
    backends = CeleryBackendCluster(CeleryTestBackend(results))
    config = {"celery_broker_cluster_config": brokers.config(), "celery_backend_cluster_config": backends.config()}
    with closing(Setup.create_setup_app(Setup.config(config), Setup.name())) as app:
        found = (kind(client().containers.get(deployment.container(service))) for service, kind in WORKERS.items())
        workers = CeleryWorkerCluster(*(CeleryTestWorker(one, app) for one in found))
        made = Setup(workers, brokers, backends, app)
        assert made.ready(control=True)
        yield made
