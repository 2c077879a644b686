"""Messages that no publisher of this project makes: a table of named cases, and how each is published as it is."""

import json
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import amqp
from kombu import Connection

from tests.support import hostile_bodies as bodies
from tests.support.hostile_message import BURIED, JSON, MAY_START, MISSING, TASK, Hostile, headers, id_of
from tests.support.hostile_message import EXECUTED as EXECUTED


class _RawMessage(amqp.Message):
    """Writes a header table as it is given, valid or not."""

    def _serialize_properties(self) -> bytes:
        described = self.properties
        flags, table = 0x8000 | 0x4000 | 0x2000 | 0x0400, described["application_headers"]
        content = _short(described["content_type"]) + _short(described["content_encoding"])
        content += struct.pack(">I", len(table)) + table + _short(described["correlation_id"])
        return struct.pack(">H", flags) + content


def _short(text: str) -> bytes:
    return struct.pack(">B", len(text)) + text.encode()


def publish(connection: Connection, queue: str, case: Hostile) -> None:
    """Publish a case to ``queue`` through the default exchange, past everything that would mend or refuse it.

    Its correlation id is ``id_of(case.name)``, by which it is known again, unless the case has another.
    """
    named = {"correlation_id": id_of(case.name), **case.properties}
    with connection.channel() as channel:
        if case.raw_headers is not None:
            message = _RawMessage(case.body, application_headers=case.raw_headers, **named)
        else:
            properties = dict(named)
            described = [properties.pop(name, None) for name in ("priority", "content_type", "content_encoding")]
            message = channel.prepare_message(case.body, *described, dict(case.headers), properties)
        channel.basic_publish(message, exchange="", routing_key=queue)


def _header(name: str, outcome: str = BURIED, **changes: Any) -> Hostile:
    return Hostile(name, bodies.PROPER, headers(name, **changes), outcome=outcome)


def _body(name: str, body: bytes | Callable[[], bytes], outcome: str = BURIED, **changes: Any) -> Hostile:
    return Hostile(name, body, headers(name, **changes), outcome=outcome)


def _type(
    name: str, body: bytes | Callable[[], bytes], content_type: str | None, encoding: str | None = "utf-8"
) -> Hostile:
    described = {"content_type": content_type, "content_encoding": encoding}
    return Hostile(name, body, headers(name), {name: value for name, value in described.items() if value is not None})


def _property(name: str, **changes: Any) -> Hostile:
    return Hostile(name, bodies.PROPER, headers(name), {**JSON, **changes}, outcome=MAY_START)


def _old(name: str, outcome: str = BURIED, **changes: Any) -> Hostile:
    """A message of Celery's protocol 1, whose body is all."""
    body = {"task": TASK, "id": id_of(name), "args": ["hostile"], "kwargs": {}, "retries": 0, "eta": None, **changes}
    kept = {name: value for name, value in body.items() if value is not MISSING}
    return Hostile(name, json.dumps(kept).encode(), {}, outcome=outcome)


def _table(name: str, outcome: str = BURIED, **fields: bytes) -> Hostile:
    """A proper message whose header table has further fields as they are on the wire."""
    table = bodies.table(headers(name), fields)
    return Hostile(name, bodies.PROPER, headers(name), outcome=outcome, raw_headers=table)


CONTENT = (
    _type("content type of raw data", bodies.PROPER, "application/data"),
    _type("content type of raw binary data", bodies.PROPER, "application/data", "binary"),
    _type("no content type", bodies.PROPER, None),
    _type("no content type and no encoding", bodies.PROPER, None, None),
    _type("content type of plain text", bodies.PROPER, "text/plain"),
    _type("content type with a charset", bodies.PROPER, "application/json; charset=utf-8"),
    _type("content type of control characters", bodies.PROPER, "\x00\r\n"),
    _type("content type of 255 characters", bodies.PROPER, "a" * 255),
    _type("yaml that runs a command", bodies.yaml(EXECUTED), "application/x-yaml"),
    _type("pickle that runs a command", bodies.pickled(EXECUTED), "application/x-python-serialize", "binary"),
    _type("pickle called json", bodies.pickled(EXECUTED), "application/json", "binary"),
    _type("msgpack", b"\x93\x90\x80\xc0", "application/x-msgpack", "binary"),
    _type("unknown encoding", bodies.PROPER, "application/json", "no-such-encoding"),
    _type("encoding of compressed data", partial(bodies.zlib_bomb, 1), "application/json", "zlib_codec"),
    _type("encoding of raw compressed data", partial(bodies.zlib_bomb, 32), "application/data", "zlib_codec"),
    _type("encoding utf-16", '[["hostile"], {}, {}]'.encode("utf-16"), "application/json", "utf-16"),
    _type("encoding idna", b"xn--" + b"a" * 20_000, "text/plain", "idna"),
    _type("encoding with a null byte", bodies.PROPER, "application/json", "utf-8\x00"),
)

BODIES = (
    _body("body of an empty list", b"[]"),
    _body("body of text", b'"x"'),
    _body("body null", b"null"),
    _body("body of a number", b"1"),
    _body("body true", b"true"),
    _body("body of an empty object", b"{}"),
    _body("body of an object with args", b'{"args": 1}'),
    _body("body with args and kwargs of wrong types", b'{"args": 1, "kwargs": []}'),
    _body("no body", b""),
    _body("body of two parts", b"[[], {}]"),
    _body("body of four parts", b"[[], {}, {}, {}]"),
    _body("body of nulls", b"[null, null, null]"),
    _body("body with the word args", b'["args", {}, {}]'),
    _body("args of text", b'["x", {}, {}]'),
    _body("args of a number", b"[1, {}, {}]"),
    _body("args of an object", b'[{"a": 1}, {}, {}]'),
    _body("kwargs of a list", b"[[], [], {}]"),
    _body("kwargs of text", b'[[], "x", {}]'),
    _body("embed of a list", b"[[], {}, [1]]"),
    _body("embed of text", b'[[], {}, "x"]'),
    _body("callbacks of text", bodies.embedding(callbacks="x")),
    _body("callbacks of numbers", bodies.embedding(callbacks=[1])),
    _body("callback without a task", bodies.embedding(callbacks=[{"args": []}])),
    _body("errbacks of a number", bodies.embedding(errbacks=5)),
    _body("errbacks of nulls", bodies.embedding(errbacks=[None])),
    _body("chain of text", bodies.embedding(chain="x")),
    _body("chain of lists", bodies.embedding(chain=[[]])),
    _body("chord of a number", bodies.embedding(chord=5)),
    _body("chord of a list", bodies.embedding(chord=["x"])),
    _body("truncated json", bodies.PROPER[:-4]),
    _body("json and garbage", bodies.PROPER + b"garbage"),
    _body("single quotes", b"[['x'], {}, {}]"),
    _body("bytes that are no utf-8", b"\xff\xfe\xfd[[], {}, {}]"),
    _body("byte order mark", b"\xef\xbb\xbf" + bodies.PROPER),
    _body("null bytes", b"\x00" * 100),
    _body("random bytes", bytes(range(256)) * 16),
    _body("compressed body that does not say so", partial(bodies.zlib_bomb, 1)),
    _body("nested lists", b"[" * 100_000),
    _body("nested objects", b'{"a":' * 100_000),
    _body("nested lists that are closed", b"[" * 50_000 + b"]" * 50_000),
    _body("argument of 450 brackets", b"[[" + b"[" * 450 + b"]" * 450 + b"], {}, {}]", MAY_START),
    _body("argument of 900 brackets", b"[[" + b"[" * 900 + b"]" * 900 + b"], {}, {}]", MAY_START),
    _body("number of 5000 digits", b"[[" + b"9" * 5_000 + b"], {}, {}]"),
    _body("more than a megabyte of elements", b"[[" + b'{"":0},' * 700_000 + b"0], {}, {}]"),
    _body("unknown type of the serializer", b'[[{"__type__": "no-such", "__value__": 1}], {}, {}]'),
    _body("wrong date of the serializer", b'[[{"__type__": "datetime", "__value__": "x"}], {}, {}]'),
    _body("wrong uuid of the serializer", b'[[{"__type__": "uuid", "__value__": {}}], {}, {}]'),
    _body("unhashable type of the serializer", b'[[{"__type__": [], "__value__": 1}], {}, {}]'),
    _body("lone surrogate in an argument", b'[["\\ud800"], {}, {}]', MAY_START),
    _body("not a number in an argument", b"[[NaN], {}, {}]", MAY_START),
    _body("unknown keyword", b'[[], {"no_such": 1}, {}]', MAY_START),
    _body("keyword of the task itself", b'[[], {"self": 1}, {}]', MAY_START),
    _body("too many arguments", b"[[1, 2, 3], {}, {}]", MAY_START),
)

COMPRESSION = (
    _header("compression of what is not compressed", compression="gzip"),
    _header("unknown compression", compression="no-such"),
    _header("compression of a number", compression=7),
    _header("compression of a list", compression=["gzip"]),
    _body("zlib bomb", partial(bodies.zlib_bomb, 32), compression="gzip"),
    _body("bzip2 bomb", partial(bodies.bz2_bomb, 32), compression="bzip2"),
    _body("lzma bomb", partial(bodies.lzma_bomb, 32), compression="lzma"),
    _body("truncated compressed body", lambda: bodies.zlib_bomb(1)[:-9], compression="application/x-gzip"),
)

HEADERS = (
    Hostile("no headers", bodies.PROPER, {}),
    _header("no id", id=MISSING),
    _header("id null", id=None),
    _header("id of a number", id=5),
    _header("id of a list", id=["x"]),
    _header("id of an object", id={"a": 1}),
    _header("empty id", id=""),
    _header("id of 60000 characters", id="i" * 60_000),
    _header("id with a lone surrogate", id="\ud800"),
    _header("id with a null byte", id="a\x00b"),
    _header("id of several lines", id="a\r\nERROR forged"),
    _header("no task", task=MISSING),
    _header("task null", task=None),
    _header("task of a number", task=5),
    _header("task of a list", task=["x"]),
    _header("task of an object", task={"a": 1}),
    _header("empty task", task=""),
    _header("unknown task", task="no.such.task"),
    _header("task of an importable function", task="os.system"),
    _header("unknown task of 60000 characters", task="t" * 60_000),
    _header("task with a lone surrogate", task="\ud800"),
    _header("shadow of a number", shadow=5),
    _header("shadow of a list", shadow=["x"]),
    _header("time limit of text", timelimit="x"),
    _header("time limit of a number", timelimit=5),
    _header("time limit of one", timelimit=[1]),
    _header("time limit of three", timelimit=[1, 2, 3]),
    _header("time limits of text", timelimit=["a", "b"]),
    _header("time limit of an object", timelimit={"a": 1}),
    _header("negative time limit", timelimit=[-1, -1]),
    _header("time limit of 1e300 seconds", timelimit=[1e300, None]),
    _header("expiry of garbage", expires="garbage"),
    _header("expiry of a number", expires=5),
    _header("expiry of a list", expires=[]),
    _header("expiry of an object", expires={"a": 1}),
    _header("expiry in the year 1", expires="0001-01-01T00:00:00+23:59"),
    _header("expiry at the end of time", expires="9999-12-31T23:59:59-23:59"),
    _header("eta of garbage", eta="garbage"),
    _header("eta of a number", eta=-1),
    _header("eta of a list", eta=["x"]),
    _header("eta in the year 9999", eta="9999-12-31T23:59:59+00:00"),
    _header("eta at the end of time", eta="9999-12-31T23:59:59-23:59"),
    _header("eta in the year 1", eta="0001-01-01T00:00:00+23:59"),
    _header("eta in the year 10000", eta="10000-01-01T00:00:00"),
    _header("retries of text", retries="x"),
    _header("negative retries", retries=-1),
    _header("retries of a list", retries=[]),
    _header("endless retries", retries=2**62),
    _header("group of a number", group=5),
    _header("group of an object", group={"a": 1}),
    _header("group index of text", group_index="x"),
    _header("root of a number", root_id=5),
    _header("root of a list", root_id=["x"]),
    _header("parent of an object", parent_id={"a": 1}),
    _header("stamps of text", stamps="x", stamped_headers=["x"]),
    _header("stamped headers of a number", stamped_headers=5, stamps={"a": "b"}),
    _header("representation of 100000 characters", argsrepr="a" * 100_000),
    _header("representation of a list", argsrepr=[1]),
    _header("representation of a number", kwargsrepr=5),
    _header("origin of a list", antenna_origin=["person"]),
    _header("unknown origin", MAY_START, antenna_origin="nobody"),
    _header("time of publishing of text", antenna_published_at="x"),
    _header("time of publishing at the end of time", MAY_START, antenna_published_at=1e300),
    _header("run of a list", antenna_admission=["x"]),
    _header("run with a null byte", antenna_admission="a\x00b"),
    _header("run of 60000 characters", antenna_admission="r" * 60_000),
    _header("starts of text", antenna_starts="x"),
    _header("starts of a list", antenna_starts=[1]),
    _header("letter of text", antenna_letter="x"),
    _header("letter below zero", antenna_letter=-1),
    _header("letter of true", antenna_letter=True),
    _header("largest letter", MAY_START, antenna_letter=2**63 - 1),
    _header("publish id of a number", antenna_publish_id=5),
    _header("delivered 2**62 times", MAY_START, **{"x-delivery-count": 2**62}),
    _header("died 2**62 times", MAY_START, **{"x-death": [{"queue": "x", "reason": "y", "count": 2**62}]}),
    _header("headers within headers", headers="x"),
    _header("another language", MAY_START, lang="java"),
    _header("forged reason", id=5, antenna_reason="all is well"),
    _header("forged past", id=5, **{"x-delivery-count": "x", "x-first-death-reason": 5}),
    _header("a thousand headers", MAY_START, **{f"x{number}": "y" * 50 for number in range(1_000)}),
    _header("header like a type of the serializer", MAY_START, unknown={"__type__": "uuid", "__value__": {}}),
    _header("nested header", unknown=bodies.nested(40)),
    _header("header of 300 brackets", unknown=bodies.nested(300)),
    _header("id of 300 brackets", id=bodies.nested(300)),
)

PROPERTIES = (
    _property("priority 255", priority=255),
    _property("transient", delivery_mode=1),
    _property("correlation id of another", correlation_id="another"),
    _property("correlation id of 255 characters", correlation_id="c" * 255),
    _property("reply to nowhere", reply_to="no.such.queue"),
    _property("message id of control characters", message_id="\x01\x02\r\n"),
    _property("app id and type", app_id="x" * 255, type="x" * 255),
)

PROTOCOL_1 = (
    _old("old protocol", MAY_START),
    _old("old protocol without an id", id=MISSING),
    _old("old protocol with an id of a number", id=5),
    _old("old protocol with an unhashable task", task=["x"]),
    _old("old protocol with an unknown task", task="no.such.task"),
    _old("old protocol without args", args=MISSING, kwargs=MISSING, outcome=MAY_START),
    _old("old protocol with args of a number", args=5),
    _old("old protocol with kwargs of a list", kwargs=[]),
    _old("old protocol with eta of garbage", eta="garbage"),
    _old("old protocol with time limit of text", timelimit="x"),
    _old("old protocol with an infinite time limit", timelimit=[float("inf"), None]),
    _old("old protocol with a time limit that is not a number", timelimit=[None, float("nan")]),
    _old("old protocol with retries of text", retries="x"),
    _old("old protocol with errbacks of text", errbacks="x"),
    Hostile("body of a list without headers", b"[1]", {}),
    Hostile("body of text without headers", b'"task"', {}),
    Hostile("body null without headers", b"null", {}),
    Hostile("no body without headers", b"", {}),
)

TABLES = (
    _table("header of a time that is none", at=b"T" + b"\xff" * 8),
    _table("header of a time in the year 5 million", at=b"T" + struct.pack(">Q", 10**14)),
    _table("header table of 10000 levels", deep=bodies.deep_table(10_000)),
    _table("header array of 10000 levels", deep=bodies.deep_array(10_000)),
    _table("header of bytes", MAY_START, blob=b"x" + struct.pack(">I", 4) + b"\xff\x00\xfe\x01"),
    _table("header text that is no utf-8", MAY_START, text=b"S" + struct.pack(">I", 4) + b"\xff\xfe\xfd\xfc"),
    _table("id that is no utf-8", id=b"S" + struct.pack(">I", 2) + b"\xff\xfe"),
    _table("id of a decimal", id=b"D\xff\x7f\xff\xff\xff"),
    _table("id of a time", id=b"T" + struct.pack(">Q", 0)),
)

HOSTILE: tuple[Hostile, ...] = (*CONTENT, *BODIES, *COMPRESSION, *HEADERS, *PROPERTIES, *PROTOCOL_1, *TABLES)


def cases(connection: Connection) -> tuple[Hostile, ...]:
    """Return the cases that the broker of this connection can carry."""
    is_amqp = connection.transport.driver_type == "amqp"
    return tuple(case for case in HOSTILE if is_amqp or not case.needs_amqp)
