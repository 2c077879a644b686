"""What aioboto3's session and google-cloud-storage's client look like to an adapter, over one dictionary."""

from contextlib import asynccontextmanager


class ClientError(Exception):
    """Of botocore's shape."""

    def __init__(self, code):
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class Session:
    """An aioboto3 session; ``denies`` is the code of an error that every request meets."""

    def __init__(self, denies=None):
        self.objects = {}
        self.connections = []
        self.conditions = []
        self.denies = denies
        self._writes = 0

    @asynccontextmanager
    async def client(self, service, **connection):
        assert service == "s3"
        self.connections.append(connection)
        yield self

    async def get_object(self, *, Bucket, Key):
        self._deny()
        if (Bucket, Key) not in self.objects:
            raise ClientError("NoSuchKey")
        content, etag = self.objects[Bucket, Key]
        return {"Body": Body(content), "ETag": etag}

    async def put_object(self, *, Bucket, Key, Body, ContentType, IfMatch=None, IfNoneMatch=None):
        self._deny()
        assert ContentType == "application/json"
        self.conditions.append((IfMatch, IfNoneMatch))
        found = self.objects.get((Bucket, Key))
        if IfMatch is not None and found is None:
            raise ClientError("NoSuchKey")
        if (IfNoneMatch == "*" and found) or (IfMatch is not None and found[1] != IfMatch):
            raise ClientError("PreconditionFailed")
        self._writes += 1
        self.objects[Bucket, Key] = (Body, f'"{self._writes}"')
        return {"ETag": f'"{self._writes}"'}

    def _deny(self):
        if self.denies:
            raise ClientError(self.denies)


class Body:
    """A streaming body."""

    def __init__(self, content):
        self.content = content

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def read(self):
        return self.content


class ApiError(Exception):
    """Of the shape of google.api_core's exceptions."""

    def __init__(self, code):
        super().__init__(f"status {code}")
        self.code = code


class Client:
    """A google-cloud-storage client; ``afterwards`` is called after each request, before its caller goes on."""

    def __init__(self, denies=None):
        self.objects = {}
        self.conditions = []
        self.denies = denies
        self.afterwards = lambda: None

    def bucket(self, name):
        return Bucket(self, name)


class Bucket:
    def __init__(self, client, name):
        self.client = client
        self.name = name

    def blob(self, name):
        return Blob(self.client, (self.name, name))


class Blob:
    """Knows the generation that the answer to its last request named."""

    def __init__(self, client, place):
        self.client = client
        self.place = place
        self.generation = None

    def download_as_bytes(self):
        self._deny()
        if self.place not in self.client.objects:
            raise ApiError(404)
        content, self.generation = self.client.objects[self.place]
        self.client.afterwards()
        return content

    def reload(self):
        self._deny()
        self.generation = self.client.objects[self.place][1]

    def upload_from_string(self, content, *, content_type, if_generation_match):
        self._deny()
        assert content_type == "application/json"
        self.client.conditions.append(if_generation_match)
        found = self.client.objects.get(self.place, (b"", 0))
        if found[1] != if_generation_match:
            raise ApiError(412)
        self.generation = 1_700_000_000_000_000 + len(self.client.conditions)
        self.client.objects[self.place] = (content, self.generation)
        self.client.afterwards()

    def _deny(self):
        if self.client.denies:
            raise ApiError(self.client.denies)
