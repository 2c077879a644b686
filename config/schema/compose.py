"""What the compose files themselves read: images, published ports, memory. No process of ours reads these."""

from ami.environment.declaration import Variables, variable

PORT = {"low": 0, "high": 65_535}


class Compose(Variables):
    """What `docker compose` reads"""

    compose_file: str = variable(
        "",
        "The files, separated by colons: docker-compose.worker.yml alone on a worker host; docker-compose.cluster.yml "
        "last.",
        written=True,
        example="docker-compose.yml:docker-compose.worker.yml",
    )
    compose_profiles: str = variable(
        "",
        "Optional services: objects (object storage), monitoring (Prometheus and Grafana), slow (the worker of "
        "antenna-slow).",
        example="objects,monitoring",
    )
    antenna_services_env_file: str = variable(
        ".env.services", "The file with the variables of the services beside Antenna's processes."
    )
    antenna_processing_image: str = variable(
        "antenna-processing:local", "The image of the reference processing service."
    )
    antenna_objects_image: str = variable("antenna-objects:local", "The image of the object storage.")
    antenna_demo_image: str = variable("antenna-demo:local", "The image of `make demo BROKER=containers`.")
    rabbitmq_image: str = variable("rabbitmq:3-management", "RabbitMQ's image.")
    rabbitmq_version: str = variable(
        "3.10",
        "RabbitMQ's version, which selects its policies; must not exceed the broker's, or the broker starts without "
        "queues.",
    )
    redis_image: str = variable("redis:7", "Redis's image.")
    postgres_image: str = variable(
        "postgres:15", "PostgreSQL's image; a new major version needs a migration of its data."
    )
    nats_image: str = variable("nats:2", "NATS's image.")
    nginx_image: str = variable("nginx:1", "The image of nginx, the proxy before web.")
    prometheus_image: str = variable("prom/prometheus:v2.53.0", "Prometheus's image.")
    grafana_image: str = variable("grafana/grafana:12.4.12", "Grafana's image.")
    redis_maxmemory: str = variable("512mb", "The memory that Redis may fill before it evicts the least used keys.")
    web_memory: str = variable(
        "4g",
        "The memory of web's container: about 1200 MiB for each process, for one body of results at a time.",
    )
    rabbitmq_memory: str = variable(
        "4g", "The memory of each RabbitMQ container; publishers are blocked above 40 % of it."
    )
    redis_memory: str = variable("1g", "The memory of Redis's container; well above REDIS_MAXMEMORY.")
    postgres_memory: str = variable("4g", "The memory of PostgreSQL's container, its cache of files included.")
    nats_memory: str = variable("1g", "The memory of NATS's container.")
    published_web_port: int = variable(
        8000, "The port of the proxy before web, on 127.0.0.1 only, like all that follow.", **PORT
    )
    published_flower_port: int = variable(5555, "The port of Flower.", **PORT)
    published_processing_port: int = variable(2000, "The port of the processing service.", **PORT)
    published_rabbitmq_port: int = variable(5672, "The port of RabbitMQ.", **PORT)
    published_rabbitmq_management_port: int = variable(15672, "The port of RabbitMQ's management.", **PORT)
    published_redis_port: int = variable(6379, "The port of Redis.", **PORT)
    published_postgres_port: int = variable(5432, "The port of PostgreSQL.", **PORT)
    published_nats_port: int = variable(4222, "The port of NATS.", **PORT)
    published_objects_port: int = variable(9000, "The port of the object storage.", **PORT)
    published_prometheus_port: int = variable(9090, "The port of Prometheus.", **PORT)
    published_grafana_port: int = variable(3000, "The port of Grafana.", **PORT)
