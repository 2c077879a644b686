"""What goes over the wire to each cloud, and what is made of its answers."""

import socket
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.errors import CASConflictError, StorageError
from ami.transports.objectstore.storage.port import Storage, Stored
from tests.support.transports.recording_server import Answer, Recorder

SECRETS = {
    "s3": {
        "access_key_id": "HIDDEN-id",
        "secret_access_key": "HIDDEN-secret",
        "session_token": "HIDDEN-session",
        "region": "us-east-1",
    },
    "gcs": {"bearer_token": "HIDDEN-bearer"},
    "azure": {"account_name": "account", "sas_key": "sv=2020&sig=HIDDEN-signature"},
    "azure with a key": {"account_name": "account", "account_key": "SElEREVOLWtleQ=="},
}
HIDDEN = ("HIDDEN", "SElEREVOLWtleQ")


class Wire(NamedTuple):
    """What a cloud's requests look like."""

    make: Callable[..., CloudObjects]
    path: str
    create: tuple[str, str]
    replace: tuple[str, str]
    version: str


WIRES = {
    "s3": Wire(CloudObjects.s3, "/bucket/a/b%2520c/key", ("if-none-match", "*"), ("if-match", '"tag"'), '"tag"'),
    "gcs": Wire(
        CloudObjects.gcs,
        "/bucket/a%2Fb%2520c%2Fkey",
        ("x-goog-if-generation-match", "0"),
        ("x-goog-if-generation-match", "7"),
        "7",
    ),
    "azure": Wire(
        CloudObjects.azure,
        "/bucket/a/b%2520c/key?sv=2020&sig=HIDDEN-signature",
        ("if-none-match", "*"),
        ("if-match", '"tag"'),
        '"tag"',
    ),
}
WIRES["azure with a key"] = WIRES["azure"]._replace(path="/bucket/a/b%2520c/key")

WRITTEN = Answer(
    headers={"ETag": '"tag"', "x-goog-generation": "7", "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"},
    body=b"content",
)
BODY = b"<Error><Code>%s</Code><CanonicalRequest>x-amz-security-token:HIDDEN-session</CanonicalRequest></Error>"


@pytest.fixture(params=WIRES)
def cloud(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def wire(cloud: str) -> Wire:
    return WIRES[cloud]


@pytest.fixture
def storage(cloud: str, wire: Wire, recorder: Recorder) -> CloudObjects:
    return wire.make("bucket", "a/b c", endpoint=recorder.url, timeout_seconds=60.0, **SECRETS[cloud])


def refused(status: int, code: bytes = b"SomeCode") -> Answer:
    return Answer(status, body=BODY % code)


OPERATIONS: dict[str, Callable[[Storage], object]] = {
    "read": lambda storage: storage.read("key"),
    "create": lambda storage: storage.create("key", b"content"),
    "replace": lambda storage: storage.replace("key", b"content", "7"),
    "delete": lambda storage: storage.delete("key"),
    "list": lambda storage: storage.list("key"),
}


# What is sent.


def test_a_create_is_sent_on_the_condition_that_there_is_none(storage: CloudObjects, wire: Wire, recorder: Recorder):
    recorder.answer = WRITTEN
    assert storage.create("key", b"content") == wire.version
    (request,) = recorder.take()
    assert (request.method, request.path, request.body) == ("PUT", wire.path, b"content")
    assert wire.create in request.headers.items()


def test_a_replace_is_sent_on_the_condition_of_its_version(storage: CloudObjects, wire: Wire, recorder: Recorder):
    recorder.answer = WRITTEN
    assert storage.read("key") == Stored(b"content", wire.version)
    recorder.take()
    assert storage.replace("key", b"new content", wire.version) == wire.version
    (request,) = recorder.take()
    assert (request.method, request.path, request.body) == ("PUT", wire.path, b"new content")
    assert wire.replace in request.headers.items()


def test_a_large_object_is_still_one_conditional_request(storage: CloudObjects, wire: Wire, recorder: Recorder):
    recorder.answer = WRITTEN
    storage.create("key", bytes(20_000_000))
    (request,) = recorder.take()
    assert len(request.body) == 20_000_000
    assert wire.create in request.headers.items()


def test_a_write_is_sent_once_and_a_read_again(storage: CloudObjects, recorder: Recorder):
    recorder.answer = refused(503)
    for operation, requests in {"create": 1, "replace": 1, "delete": 1, "read": 3, "list": 3}.items():
        with pytest.raises(StorageError, match=f"cannot {operation} 'key' in .*: 503"):
            OPERATIONS[operation](storage)
        assert len(recorder.take()) == requests, operation


# What the answers mean.


@pytest.mark.parametrize("status", [409, 412])
@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_refused_condition_is_a_conflict(storage: CloudObjects, recorder: Recorder, operation: str, status: int):
    recorder.answer = refused(status)
    with pytest.raises(CASConflictError, match="'key'"):
        OPERATIONS[operation](storage)


def test_a_missing_object_is_none_to_read_and_a_conflict_to_replace(storage: CloudObjects, recorder: Recorder):
    recorder.answer = refused(404, b"NoSuchKey")
    assert storage.read("key") is None
    with pytest.raises(CASConflictError):
        storage.replace("key", b"", "7")
    with pytest.raises(StorageError):
        storage.create("key", b"")
    assert storage.read("NoSuchBucket/ContainerNotFound/<Code>NoSuchBucket</Code>/bucket does not exist") is None


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_missing_bucket_is_no_missing_object(storage: CloudObjects, recorder: Recorder, operation: str):
    for code in (b"NoSuchBucket", b"ContainerNotFound", b"</Code>The specified bucket does not exist."):
        recorder.answer = refused(404, code)
        with pytest.raises(StorageError, match="404 Not Found"):
            OPERATIONS[operation](storage)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_other_refusal_is_an_error_with_its_cause(storage: CloudObjects, recorder: Recorder, operation: str):
    for status in (400, 401, 403):
        recorder.answer = refused(status)
        told = rf"cannot {operation} 'key' in .*a/b%20c: {status} .*\(SomeCode\)"
        with pytest.raises(StorageError, match=told) as raised:
            OPERATIONS[operation](storage)
        assert raised.value.cause is not None
        assert raised.value.cause is raised.value.__cause__


def test_an_answer_that_ends_early_is_not_taken_for_the_object(storage: CloudObjects, recorder: Recorder):
    recorder.answer = WRITTEN._replace(length=100)
    with pytest.raises(StorageError, match="cannot read 'key'"):
        storage.read("key")


def test_a_service_that_sends_no_version_is_refused(storage: CloudObjects, recorder: Recorder):
    recorder.answer = Answer(headers={"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"})
    for operation in ("read", "create", "replace"):
        with pytest.raises(StorageError):
            OPERATIONS[operation](storage)


PAGE = {
    "s3": "<ListBucketResult>{next}{objects}</ListBucketResult>",
    "azure": "<EnumerationResults><Blobs>{objects}</Blobs>{next}</EnumerationResults>",
}
PAGE["gcs"] = PAGE["s3"]
OBJECT = {
    "s3": "<Contents><Key>{key}</Key><LastModified>2020-01-01T00:00:00Z</LastModified><Size>1</Size><ETag>e</ETag>"
    "</Contents>",
    "azure": "<Blob><Name>{key}</Name><Properties><Last-Modified>Wed, 01 Jan 2020 00:00:00 GMT</Last-Modified>"
    "<Content-Length>1</Content-Length><Content-Type>x</Content-Type><Etag>e</Etag></Properties></Blob>",
}
OBJECT["gcs"] = OBJECT["s3"]


@pytest.mark.parametrize("cloud", ["s3", "gcs", "azure"], indirect=True)
def test_a_list_asks_for_the_folder_and_keeps_what_begins_so(storage: CloudObjects, cloud: str, recorder: Recorder):
    objects = "".join(OBJECT[cloud].format(key=f"a/b%20c/{key}") for key in ("d/x%25", "d/key-2", "d/key-1", "d/k y"))
    recorder.answer = Answer(body=PAGE[cloud].format(next="", objects=objects).encode())
    assert storage.list("d/") == ["d/key-1", "d/key-2", "d/x%"]
    assert storage.list("d/key") == ["d/key-1", "d/key-2"]
    assert all("prefix=a%2Fb%2520c%2Fd%2F" in request.path for request in recorder.take())


BATCH = b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nHTTP/1.1 %s\r\n\r\n\r\n--b--\r\n"


@pytest.mark.parametrize("cloud", ["s3", "gcs", "azure"], indirect=True)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_delete_is_content_with_an_object_that_is_gone(
    storage: CloudObjects, cloud: str, recorder: Recorder, is_there: bool
):
    if cloud == "azure":
        # Azure is asked in a batch, and answers each part by itself.
        part = (
            b"202 Accepted" if is_there else b"404 The specified blob does not exist.\r\nx-ms-error-code: BlobNotFound"
        )
        recorder.answer = Answer(202, {"Content-Type": "multipart/mixed; boundary=b"}, BATCH % part)
    else:
        recorder.answer = Answer(204) if is_there else refused(404, b"NoSuchKey")
    storage.delete("key")
    (request,) = recorder.take()
    assert request.method == ("POST" if cloud == "azure" else "DELETE")


# Time.


def test_waiting_for_a_silent_service_ends_at_the_timeout(cloud: str, wire: Wire, recorder: Recorder):
    storage = wire.make("bucket", endpoint=recorder.url, timeout_seconds=0.15, **SECRETS[cloud])
    recorder.answer = None
    for operation, use in OPERATIONS.items():
        began = time.monotonic()
        with pytest.raises(StorageError, match=f"cannot {operation} 'key' in .*: no answer in time"):
            use(storage)
        # Not as long as the service keeps it waiting, which is a minute.
        assert time.monotonic() - began < 30


def test_a_service_that_is_not_there_is_an_error(cloud: str, wire: Wire):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    storage = wire.make("bucket", endpoint=endpoint, **SECRETS[cloud])
    with pytest.raises(StorageError, match="Connection refused"):
        storage.create("key", b"")


# Credentials.


def described(error: BaseException) -> str:
    """Return everything that a log or a report could show of an error, what variables held in our frames included."""
    lines, seen = [], []
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is None or link in seen:
            continue
        seen.append(link)
        shown = traceback.TracebackException.from_exception(link, capture_locals=True)
        frames = [frame for frame in shown.stack if "/ami/transports/" in frame.filename]
        lines += [str(link), repr(link), repr(vars(link)), *traceback.StackSummary.from_list(frames).format()]
        chain += [link.__cause__, link.__context__, getattr(link, "cause", None)]
    return "\n".join(lines)


def test_no_error_tells_a_credential(cloud: str, wire: Wire, storage: CloudObjects, recorder: Recorder):
    short = wire.make("bucket", endpoint=recorder.url, timeout_seconds=0.1, **SECRETS[cloud])
    errors = []
    for answer in [*map(refused, (400, 401, 403, 404, 409, 412)), None]:
        recorder.answer = answer
        for use in OPERATIONS.values():
            try:
                use(short if answer is None else storage)
            except (CASConflictError, StorageError) as error:
                errors.append(error)
    texts = [*map(described, errors), repr(storage), repr(vars(storage))]
    assert len(errors) >= 28
    assert all("_ask" in text for text in texts[:-2])
    assert [text for text in texts if any(secret in text for secret in HIDDEN)] == []


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (CloudObjects.s3, {"secret_acces_key": "HIDDEN"}, "secret_acces_key"),
        (CloudObjects.s3, {"endpoint": "ftp//HIDDEN"}, "is not an http or https URL"),
        (CloudObjects.s3, {"endpoint": "http://"}, "is not an http or https URL"),
        (CloudObjects.s3, {"timeout_seconds": 0}, "timeout_seconds is 0; it must be above 0"),
        (CloudObjects.azure, {"account_name": "a", "account_key": "HIDDEN-no base64"}, "Access Key"),
        (CloudObjects.azure, {}, "Account must be specified"),
        (CloudObjects.gcs, {"service_account_key": '{"private_key": "HIDDEN"}'}, "service account"),
    ],
)
def test_wrong_settings_are_refused_at_once(
    make: Callable[..., CloudObjects], settings: dict[str, object], message: str
):
    with pytest.raises(ValueError, match=message) as raised:
        make("bucket", **settings)
    assert "HIDDEN" not in str(raised.value)
    assert raised.value.__context__ is None


def test_a_bucket_needs_a_name():
    with pytest.raises(ValueError, match="needs a name"):
        CloudObjects.s3("")


def test_the_environment_names_the_endpoint(recorder: Recorder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", recorder.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    recorder.answer = WRITTEN
    CloudObjects.s3("bucket").create("key", b"")
    assert [request.path for request in recorder.take()] == ["/bucket/key"]
