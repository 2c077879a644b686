# The commands of this project. Bare `make` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3.11
V := .venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1|\2/' | column -t -s '|'

# Two sets of packages: what `make demo` and `make run` need, and what developers and tests need.
RUN := .venv/installed-run
TEST := .venv/installed-test
# The Python that .venv was made with may be gone.
$(shell [ -x $(V) ] || rm -f $(RUN) $(TEST))
$(RUN): requirements/base.txt requirements/processing.txt
$(TEST): requirements/local.txt
$(RUN) $(TEST): .venv/installed-%: requirements/uv.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed (set PYTHON=... to where it is)."; exit 1; }
	@$(PYTHON) -m provision.installation $*

setup: $(TEST) ## Make .venv with the pinned requirements of developers and tests

run: $(RUN) ## Run everything on this machine and restart it when the code changes; needs no service (PORT=8001)
	@$(V) -m demo.local $(if $(PORT),--port '$(PORT)')

demo: $(RUN) ## Run the main job end to end; needs no service (BROKER=rabbitmq, a URL or containers; CAPTURES=FOLDER; KEEP=1)
ifeq ($(BROKER),containers)
	@$(if $(KEEP),echo "KEEP=1 leaves no containers running: use 'make up', or KEEP=1 with another broker." >&2; exit 2)
	@$(V) -m demo.containers $(if $(CAPTURES),--captures '$(CAPTURES)')
else
	@$(V) -m demo $(if $(BROKER),--broker '$(BROKER)') $(if $(CAPTURES),--captures '$(CAPTURES)') $(if $(KEEP),--keep)
endif

# Number of parallel test processes.
WORKERS ?= 2

test: setup ## Run all tests, in parallel: on real services, in containers (ARGS='-k name': some, on the services)
ifdef ARGS
	$(V) -m provision run --private -- $(V) -m pytest --durations=15 $(ARGS)
else
	$(V) -m tests --workers $(WORKERS)
endif

test-fast: setup ## Run the tests that need neither services nor processes
	$(V) -m tests fast --workers $(WORKERS)

smoke: setup ## Run all tests in containers, of which `make test` runs a part; skipped with a message if there is no engine
	$(V) -m pytest tests/smoke --timeout=900 --durations=15 $(ARGS)

SCRIPTS := compose/start/* compose/build/install compose/rabbitmq/with-cookie compose/rabbitmq/members compose/redis/with-password compose/postgres/database-user .ci/run .ci/compose-files

check: setup ## Lint, types, layers, system checks, migrations, rendered files
	$(V) -m ruff check .
	$(V) -m ruff format --check .
	$(V) -m mypy
	$(V) .venv/bin/lint-imports --config pyproject.toml
	DJANGO_SETTINGS_MODULE=config.settings.test $(V) manage.py check --fail-level WARNING
	DJANGO_SETTINGS_MODULE=config.settings.test $(V) manage.py makemigrations --check --dry-run
	DJANGO_SETTINGS_MODULE=config.settings.test $(V) manage.py spectacular --validate --fail-on-warn --file /dev/null
	$(V) -m config.rendered --check
	.venv/bin/hadolint compose/Dockerfile
	.venv/bin/shellcheck $(SCRIPTS)
	@if docker compose version >/dev/null 2>&1; then bash .ci/compose-files; else echo "NO docker compose HERE: the compose files were not parsed by it"; fi

render: setup ## Rewrite the files that are rendered from the table and the schema of variables
	$(V) -m config.rendered

format: setup ## Format the code and sort its imports
	$(V) -m ruff format .
	$(V) -m ruff check --fix .

screenshots: setup ## Take the pictures of the documentation with Chromium (ARGS='--all FOLDER': every page, both sizes and themes)
	$(V) -m tests.support.screenshots $(ARGS)

soak: setup ## Run the long forms of the tests
	ANTENNA_SOAK=1 $(V) -m provision run --private -- $(V) -m pytest tests/acceptance tests/integration tests/unit $(ARGS)
	ANTENNA_SOAK=1 $(V) -m pytest tests/smoke --timeout=1800 $(ARGS)

contract: setup ## Run the origin's real clients from checkouts of theirs (ADC_SOURCE=FOLDER ANTENNA_SOURCE=FOLDER, ARGS='--json')
	env -u ADC_SOURCE -u ANTENNA_SOURCE DJANGO_SETTINGS_MODULE=config.settings.test $(V) -m provision run --private -- \
	  $(V) -m tests.contract $(if $(ADC_SOURCE),--adc-source '$(ADC_SOURCE)') $(if $(ANTENNA_SOURCE),--antenna-source '$(ANTENNA_SOURCE)') $(ARGS)

attack: setup ## Run the security tests against a local deployment: requests, messages, bodies, logins (ARGS='--short', '--parts bodies')
	$(V) -m provision run --private -- $(V) -m tests.attack $(ARGS)

bench: setup ## Run the benchmarks, each with its reference
	$(V) -m provision run --private -- $(V) -m benchmarks.workers
	$(V) -m benchmarks.objectstore
	$(V) -m provision run --private -- $(V) -m benchmarks.results_memory
	$(V) -m provision run --private --need redis,rabbitmq -- $(V) -m benchmarks.brokers
	$(V) -m provision run --private --need rabbitmq,redis -- $(V) -m benchmarks.brokers.delays
	$(V) -m provision run --private --need redis,rabbitmq -- $(V) -m benchmarks.publishing
	$(V) -m provision run --durable --need postgres -- $(V) -m benchmarks.ingest
	$(V) -m provision run --durable --need postgres,rabbitmq,nats -- $(V) -m benchmarks.ingest_posts
	$(V) -m provision run --durable --need postgres,rabbitmq,nats -- $(V) -m benchmarks.jobs
	$(V) -m provision run --durable --need postgres -- $(V) -m benchmarks.lists
	$(V) -m provision run --durable --need postgres -- $(V) -m benchmarks.exports
	$(V) -m benchmarks.exports
	$(V) -m provision run --private --need rabbitmq,postgres -- $(V) -m benchmarks.operations
	$(V) -m provision run --private --need rabbitmq,postgres -- $(V) -m benchmarks.failures
	$(V) -m provision run --private --need rabbitmq,postgres -- $(V) -m benchmarks.telemetry
	$(V) -m provision run --private --need rabbitmq,postgres,redis -- $(V) -m benchmarks.console
	mkdir -p .test-logs && DATABASE_URL=sqlite:///$(CURDIR)/.test-logs/rows.sqlite3 $(V) -m benchmarks.failures --pairs 0
	$(V) -m provision run --durable --need rabbitmq,postgres -- $(V) -m benchmarks.admission
	$(V) -m benchmarks.start
	$(V) -m provision run --private --need rabbitmq -- $(V) -m benchmarks.overhead

requirements: setup ## Resolve requirements/*.in again and pin them with hashes
	for name in uv base processing objects production local; do \
	  .venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --custom-compile-command 'make requirements' requirements/$$name.in -o requirements/$$name.txt || exit 1; done

COMPOSE := docker compose -f docker-compose.yml -f docker-compose.worker.yml
up: export ANTENNA_VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)

.env .env.services &: | $(RUN)
	$(V) -m provision dotenv --local

up: .env .env.services ## Start everything in containers and return when all is healthy (makes .env and .env.services if missing)
	$(COMPOSE) up --build --detach --wait
	@echo "web:    http://localhost:$$($(COMPOSE) port proxy 8080 | cut -d: -f2)  (docker compose exec web python manage.py createsuperuser)"
	@echo "Flower: http://localhost:$$($(COMPOSE) port flower 5555 | cut -d: -f2)  (FLOWER_BASIC_AUTH in .env)"

down: ## Stop the containers (their volumes stay)
	$(COMPOSE) down

logs: ## Follow the containers' logs
	$(COMPOSE) logs --follow --tail 100

clean: ## Remove everything that make created
	rm -rf .venv .demo .test-logs .provision .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

.PHONY: help setup run demo test test-fast smoke check render format screenshots soak attack contract bench requirements up down logs clean
