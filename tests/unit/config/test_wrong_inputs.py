"""Wrong inputs at a command line: one sentence with the fact and the remedy, no traceback, no secret.

Wrong values of environment variables are in `test_refusals`.
"""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import forked_python

from .conftest import SECRETS, copy, environment

pytestmark = pytest.mark.processes

SECRET = "wrong-inputs-secret"
MANAGE = ("manage.py",)
QUEUES = (*MANAGE, "queues")
TOKENS = (*MANAGE, "tokens")
TOPOLOGY = ("-m", "ami.topology")
CELERY = ("-m", "celery", "-A", "config")
WAITING = ("-m", "config.waiting")
PROVISION = ("-m", "provision")
DEMO = ("-m", "demo")
PROCESSING = ("-m", "processing_service")
PULL = (*PROCESSING, "pull", "--antenna", "http://127.0.0.1:{closed}", "--name", "x")

#: Environments; {closed} is a port that nothing listens on, {folder} an empty folder, {file} a file with a line in it.
LOCAL = {
    "DJANGO_SETTINGS_MODULE": "config.settings.local",
    "CELERY_BROKER_URL": "objectstore+file://{folder}/broker",
    "DATABASE_URL": "sqlite:///{migrated}",
    "REDIS_URL": "",
    "NATS_URL": "",
}
PRODUCTION = {"DJANGO_SETTINGS_MODULE": "config.settings.production"}
EMPTY = {**LOCAL, "DATABASE_URL": "sqlite:///{folder}/empty.sqlite3"}
CLOSED = {**LOCAL, "DATABASE_URL": f"postgres://antenna:{SECRET}@127.0.0.1:{{closed}}/antenna"}
NO_HOST = {**LOCAL, "DATABASE_URL": f"postgres://antenna:{SECRET}@nosuch.invalid/antenna"}
NO_FOLDER = {**LOCAL, "DATABASE_URL": "sqlite:///{folder}/nosuch/x.sqlite3"}
UNWRITABLE = {**LOCAL, "DATABASE_URL": "sqlite:////proc/x.sqlite3"}
A_FOLDER = {**LOCAL, "DATABASE_URL": "sqlite:///{folder}"}
NO_DATABASE = {**LOCAL, "DATABASE_URL": "sqlite:///{file}"}
NO_BROKER = {**LOCAL, "CELERY_BROKER_URL": f"amqp://antenna:{SECRET}@127.0.0.1:{{closed}}/antenna"}
MISSPELT = {**LOCAL, "DJANGO_SETTINGS_MODULE": "config.settings.prodction"}
PULLING = {**LOCAL, "ANTENNA_TOKEN": SECRET}

DID_YOU_MEAN_PRODUCTION = "Did you mean 'config.settings.production'?"
MIGRATE = "'python manage.py migrate'"
SWITCH_ON = "set ANTENNA_SLOW_ENABLED=1 for every process to switch it on, and COMPOSE_PROFILES=slow"
START_BROKER = "start the broker or correct CELERY_BROKER_URL"
POSITIVE = "is not a whole number of 1 or more"


class Row(NamedTuple):
    """A command line, the fact and the remedy that it prints, and its environment."""

    argv: tuple[str, ...]
    fact: str
    remedy: str
    changes: dict[str, str] = LOCAL


WRONG = {
    # The settings module.
    "settings of manage.py": Row((*MANAGE, "check"), "'config.settings.prodction'", DID_YOU_MEAN_PRODUCTION, MISSPELT),
    "settings option of manage.py": Row(
        (*MANAGE, "check", "--settings", "config.settings.locl"),
        "--settings is 'config.settings.locl'",
        "Did you mean 'config.settings.local'?",
    ),
    "settings of a package": Row(
        (*MANAGE, "check", "--settings=mysite.settings"), "'mysite.settings'", "use one of config.settings.local"
    ),
    "settings by file name": Row(
        (*MANAGE, "check", "--settings=config/settings/local.py"), "is not a settings module", "use one of"
    ),
    "settings of every place": Row(
        (*MANAGE, "check", "--settings=config.settings.base"), "is not a settings module", "use one of"
    ),
    "settings of celery": Row((*CELERY, "inspect", "ping"), "prodction'", DID_YOU_MEAN_PRODUCTION, MISSPELT),
    "settings of a worker": Row((*TOPOLOGY, "worker", "antenna"), "prodction'", DID_YOU_MEAN_PRODUCTION, MISSPELT),
    "settings of a printed worker": Row(
        (*TOPOLOGY, "worker", "antenna", "--print"), "prodction'", DID_YOU_MEAN_PRODUCTION, MISSPELT
    ),
    "settings of web": Row(
        ("-m", "gunicorn", "config.wsgi", "--preload", "--bind", "127.0.0.1:0"),
        "prodction'",
        DID_YOU_MEAN_PRODUCTION,
        MISSPELT,
    ),
    "settings of a waiting process": Row((*WAITING, "true"), "prodction'", DID_YOU_MEAN_PRODUCTION, MISSPELT),
    # The database.
    "migrate without a database": Row(
        (*MANAGE, "migrate"), "127.0.0.1:{closed} (DATABASE_URL) cannot be used: connection refused", "start", CLOSED
    ),
    "runserver without a database": Row(
        (*MANAGE, "runserver", "127.0.0.1:0"),
        "connection refused",
        "start the database or correct DATABASE_URL",
        CLOSED,
    ),
    "schedule without a database": Row(
        (*QUEUES, "schedule"), "connection refused", "start the database or correct DATABASE_URL", CLOSED
    ),
    "setup without a database": Row((*MANAGE, "setup"), "connection refused", "correct DATABASE_URL", CLOSED),
    "beat without a database": Row((*TOPOLOGY, "beat"), "connection refused", "correct DATABASE_URL", CLOSED),
    "database of an unknown host": Row(
        (*TOKENS, "list"),
        "nosuch.invalid:5432 (DATABASE_URL) cannot be used: the name is not known",
        "correct",
        NO_HOST,
    ),
    "database in no folder": Row(
        (*MANAGE, "migrate"), "there is no folder {folder}/nosuch", "create it or correct DATABASE_URL", NO_FOLDER
    ),
    "database in an unwritable folder": Row(
        (*MANAGE, "migrate"), "/proc/x.sqlite3 (DATABASE_URL) cannot be used", "let this user write", UNWRITABLE
    ),
    "database that is a folder": Row((*MANAGE, "migrate"), "it is a folder", "name a file in it", A_FOLDER),
    "database of another kind": Row(
        (*MANAGE, "migrate"), "the file is not an SQLite database", "correct DATABASE_URL", NO_DATABASE
    ),
    "schedule before migrate": Row((*QUEUES, "schedule"), "lacks migrations", MIGRATE, EMPTY),
    "token before migrate": Row(
        (*TOKENS, "create", "x", "--user", "a@example.org", "--project", "1"), "lacks migrations", MIGRATE, EMPTY
    ),
    "tokens before migrate": Row((*TOKENS, "list"), "lacks migrations", MIGRATE, EMPTY),
    "beat before migrate": Row((*TOPOLOGY, "beat"), "lacks migrations", MIGRATE, EMPTY),
    # The topology.
    "worker of a queue that is off": Row(
        (*TOPOLOGY, "worker", "antenna-slow"), "The queue 'antenna-slow' is off", SWITCH_ON
    ),
    "worker of a misspelt queue": Row(
        (*TOPOLOGY, "worker", "antena-slow"), "consumes the queue 'antena-slow'", "Did you mean 'antenna-slow'?"
    ),
    "worker of no queue": Row((*TOPOLOGY, "worker"), "arguments are required: queue", "usage: "),
    "unknown verb of the topology": Row((*TOPOLOGY, "worke"), "invalid choice: 'worke'", "choose from 'worker'"),
    "no verb of the topology": Row(TOPOLOGY, "arguments are required: verb", "{{worker,beat,"),
    "workers of a misspelt queue": Row(
        (*TOPOLOGY, "all", "--only", "antena"), "consumes the queue 'antena'", "Did you mean 'antenna'?"
    ),
    "workers of no size": Row((*TOPOLOGY, "all", "--concurrency", "0"), "'0' is not", "whole number from 1 to 512"),
    "workers in a wrong environment": Row(
        (*TOPOLOGY, "all"), "NATS_URL is not set", "set it to something like nats://", {**PRODUCTION, "NATS_URL": ""}
    ),
    "unknown option of the topology": Row(
        (*TOPOLOGY, "compose", "--chek"), "unrecognized arguments: --chek", "usage: "
    ),
    "worker with an unknown option": Row(
        (*TOPOLOGY, "worker", "antenna", "--nosuch"), "No such option '--nosuch'", "worker --help"
    ),
    "worker with a bare word": Row(
        (*TOPOLOGY, "worker", "antenna", "word"), "Unable to parse extra configuration", "worker --help"
    ),
    "printed worker of a queue that is off": Row((*TOPOLOGY, "worker", "antenna-slow", "--print"), "is off", SWITCH_ON),
    "printed worker with an unknown option": Row(
        (*TOPOLOGY, "worker", "antenna", "--print", "--nosuch"), "No such option '--nosuch'", "worker --help"
    ),
    "printed worker with a wrong number": Row(
        (*TOPOLOGY, "worker", "antenna", "--print", "--concurrency", "x"), "got 'x'", "a non-negative integer"
    ),
    "printed worker with a bare word": Row(
        (*TOPOLOGY, "worker", "antenna", "--print", "word"), "Unexpected argument word", "options begin with --"
    ),
    "printed worker of two queues": Row(
        (*TOPOLOGY, "worker", "antenna", "--print", "-Q", "antenna-slow"), "is off", SWITCH_ON
    ),
    "printed worker in a wrong environment": Row(
        (*TOPOLOGY, "worker", "antenna", "--print"),
        "NATS_URL is not set",
        "set it to something like nats://",
        {**PRODUCTION, "NATS_URL": ""},
    ),
    "printed beat with a wrong number": Row(
        (*TOPOLOGY, "beat", "--print", "--max-interval", "x"), "'x' is not a valid integer", "beat --help"
    ),
    # Celery.
    "celery worker of a misspelt queue": Row(
        (*CELERY, "worker", "-Q", "antena-ingest"), "the queue 'antena-ingest'", "Did you mean 'antenna-ingest'?"
    ),
    "celery worker of a queue that is off": Row((*CELERY, "worker", "-Q", "antenna-slow"), "is off", SWITCH_ON),
    "celery worker of no queue": Row(
        (*CELERY, "worker", "-c", "2"), "names no queue", "or 'python -m ami.topology all', which starts"
    ),
    "celery worker of the module of the application": Row(
        ("-m", "celery", "-A", "config.celery_app", "worker"), "names no queue", "'celery -A config worker -Q QUEUE'"
    ),
    "celery worker with a beat": Row(
        (*CELERY, "worker", "-Q", "antenna", "-B"), "beat is a process of its own", "'python -m ami.topology beat'"
    ),
    "celery worker larger than its container": Row(
        (*CELERY, "worker", "-Q", "antenna", "-c", "60"), "60 children of antenna do not fit", "Name at most"
    ),
    "celery worker that grows beyond its container": Row(
        (*CELERY, "worker", "-Q", "antenna", "--autoscale", "60,1"), "60 children of antenna do not fit", "Name at most"
    ),
    "celery worker of a gevent row": Row(
        (*CELERY, "worker", "-Q", "antenna"),
        "must patch the process",
        "'celery -A config worker -Q antenna -P gevent'",
        {**LOCAL, "ANTENNA_FALLBACK_POOL": "gevent"},
    ),
    "printed worker larger than its container": Row(
        (*TOPOLOGY, "worker", "antenna", "--print", "--concurrency", "60"), "do not fit", "Name at most"
    ),
    "unknown inspection": Row(
        (*CELERY, "inspect", "pnig"), "Command pnig not recognized", "Available inspect commands: active"
    ),
    "flower without a login": Row(
        (*CELERY, "flower", "--port=0"), "FLOWER_BASIC_AUTH is not set", "set it to USER:PASSWORD", PRODUCTION
    ),
    "flower with an unknown option": Row(
        (*CELERY, "flower", "--adress=127.0.0.1", "--port=0"), "no option 'adress'", "Did you mean 'address'?"
    ),
    "waiting for no command": Row(WAITING, "arguments are required: COMMAND", "usage: "),
    "waiting for an unknown command": Row(
        (*WAITING, "nosuch-command"), "'nosuch-command'", "cannot be started", {**LOCAL, "ANTENNA_WAIT_SECONDS": "0"}
    ),
    # manage.py and queues.
    "unknown command": Row((*MANAGE, "quues"), "Unknown command: 'quues'", "Did you mean queues?"),
    "unknown verb of queues": Row((*QUEUES, "flush"), "invalid choice: 'flush'", "choose from 'declare'"),
    "no verb of queues": Row(QUEUES, "arguments are required: verb", "{{declare,tasks,"),
    "limit of 0": Row((*QUEUES, "dead-letters", "antenna.dlq", "--limit", "0"), "'0' is not", "of 1 or more"),
    "limit below 0": Row((*QUEUES, "dead-letters", "antenna.dlq", "--limit", "-3"), "'-3'", POSITIVE),
    "limit of a word": Row((*QUEUES, "dead-letters", "antenna.dlq", "--limit", "x"), "'x'", POSITIVE),
    "limit of no queue": Row(
        (*QUEUES, "dead-letters", "--limit", "3", "--json"), "Name the queue", "Known: antenna-ingest.dlq"
    ),
    "letters of a misspelt queue": Row(
        (*QUEUES, "dead-letters", "antenna.dql"), "'antenna.dql' keeps no dead", "Did you mean 'antenna.dlq'?"
    ),
    "letters replayed and discarded": Row(
        (*QUEUES, "dead-letters", "antenna.dlq", "--replay", "--discard"), "not allowed with", "usage: "
    ),
    "rollback without a terminal": Row((*QUEUES, "rollback"), "is not a terminal", "add --yes, or --dry-run"),
    "rollback as JSON": Row((*QUEUES, "rollback", "--json"), "is not a terminal", "add --yes, or --dry-run"),
    "discard without a terminal": Row(
        (*QUEUES, "dead-letters", "antenna.dlq", "--discard"), "is not a terminal", "add --yes, or --dry-run"
    ),
    "dry run of a list": Row(
        (*QUEUES, "dead-letters", "antenna.dlq", "--dry-run"), "--dry-run shows what", "add one of them"
    ),
    "declare without a broker": Row((*QUEUES, "declare"), "127.0.0.1:{closed}", START_BROKER, NO_BROKER),
    "governor without a worker": Row((*QUEUES, "governor"), "No worker answered within 2 s", "start them"),
    # tokens.
    "token of an unknown account": Row(
        (*TOKENS, "create", "x", "--user", "a@example.org", "--project", "1"),
        "No account has the e-mail address 'a@example.org'",
        "manage.py createsuperuser",
    ),
    "token of a project by name": Row(
        (*TOKENS, "create", "x", "--user", "a@example.org", "--project", "one"), "'one'", POSITIVE
    ),
    "token that expires at once": Row(
        (*TOKENS, "create", "x", "--user", "a@example.org", "--expires-days", "0"), "'0'", POSITIVE
    ),
    "unknown token": Row((*TOKENS, "revoke", "7"), "There is no valid token 7", "'tokens list' shows"),
    # The programs beside the product.
    "unknown verb of provision": Row((*PROVISION, "stats"), "invalid choice: 'stats'", "choose from 'run'"),
    "provision of no command": Row((*PROVISION, "run"), "run needs a command", "after --"),
    "provision of an unknown service": Row(
        (*PROVISION, "run", "--need", "rabbit", "--", "true"), "no service is called rabbit", "there are rabbitmq"
    ),
    "demo on no broker": Row((*DEMO, "--broker", "amqp//x"), "is not a broker", "use embedded, rabbitmq, or a URL"),
    "demo on a broker without its library": Row(
        (*DEMO, "--broker", "kafka://x"), "needs a library that is not installed", "use embedded, rabbitmq"
    ),
    "demo on an unreadable broker": Row(
        (*DEMO, "--broker", f"amqp://antenna:{SECRET}@127.0.0.1:port/x"), "no readable host and port", "use embedded"
    ),
    "demo of no captures": Row(
        (*DEMO, "--captures", "{folder}/nosuch"), "{folder}/nosuch is not a folder", "a subfolder of photographs"
    ),
    "demo of an empty folder": Row(
        (*DEMO, "--captures", "{empty}"), "{empty} has no files", "a subfolder of photographs per station"
    ),
    "demo in a folder of others": Row((*DEMO, "--folder", "{folder}"), "holds files of others", "name a new one"),
    "demo in no folder": Row((*DEMO, "--folder", "/proc/x"), "/proc/x cannot be used", "this user may write to"),
    "demo of no frames": Row((*DEMO, "--frames", "0"), "0 draws nothing", "give 1 or more"),
    "processing of an unknown pipeline": Row(
        (*PROCESSING, "serve", "--pipeline", "nosuch"), "no pipeline 'nosuch'", "there are: sheet-moths"
    ),
    "processing on no port": Row((*PROCESSING, "serve", "--port", "99999"), "'99999' is not a port", "from 0 to 65535"),
    "pulling without a token": Row(
        (*PULL, "--project", "1"), "the variable ANTENNA_TOKEN has no token", "set it, or give --email"
    ),
    "pulling from no URL": Row(
        (*PROCESSING, "pull", "--antenna", f"{SECRET}@antenna", "--project", "1", "--name", "x"),
        "argument --antenna: it is not a URL",
        "write it like https://",
        PULLING,
    ),
    "pulling for a project by name": Row((*PULL, "--project", "moths"), "'moths'", POSITIVE, PULLING),
    "pulling in no time": Row(
        (*PULL, "--project", "1", "--poll-seconds", "-1"), "'-1' is not a number of seconds", "0 or more", PULLING
    ),
}

#: What may stand around the sentence: argparse's usage, Celery's hint, what was tried (the audit log).
AROUND = (
    re.compile(r"usage: .*(\n +.*)*\n"),
    re.compile(r"Usage: .*\nTry '.*' for help\.\n\n"),
    re.compile(r".* INFO \d+ ami\.audit: .*\n"),
    re.compile(r"Type 'manage\.py help' for usage\.\n"),
    re.compile(r"(?<=command line\.)\n(?=Reason: )"),
)


@pytest.fixture(scope="module")
def places(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder, empty = tmp_path_factory.mktemp("folder"), tmp_path_factory.mktemp("empty")
    copy(migrated, folder / "migrated.sqlite3")
    (folder / "file").write_text("This is not a database.\n" * 100)
    with socket.socket() as closed:
        # Bound and not listening: refuses connections, and no other process gets the port.
        closed.bind(("127.0.0.1", 0))
        yield {
            "folder": str(folder),
            "empty": str(empty),
            "file": str(folder / "file"),
            "migrated": str(folder / "migrated.sqlite3"),
            "closed": str(closed.getsockname()[1]),
        }


def run(row: Row, places: dict[str, str]) -> subprocess.CompletedProcess[str]:
    changes = {name: value.format(**places) for name, value in row.changes.items()}
    return forked_python.run([word.format(**places) for word in row.argv], env=environment(**changes))


@pytest.mark.parametrize("row", WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_sentence_with_the_remedy(row: Row, places: dict[str, str]):
    done = run(row, places)
    if "worker" in row.argv and CELERY[1] in row.argv:
        assert done.returncode == 2
    assert done.returncode != 0
    for words in (row.fact, row.remedy):
        assert words.format(**places) in done.stderr
    assert "Traceback" not in done.stderr
    assert [secret for secret in (SECRET, *SECRETS.values()) if secret in done.stdout + done.stderr] == []
    sentence = done.stderr
    for around in AROUND:
        sentence = around.sub("", sentence)
    assert len(sentence.strip().splitlines()) == 1, done.stderr
    assert re.sub(r"celery beat v.* is starting\.\n", "", done.stdout) == ""


def test_table_has_at_least_45_rows():
    assert len(WRONG) >= 45
