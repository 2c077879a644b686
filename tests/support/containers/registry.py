"""A registry on this machine that serves one of the engine's images: the read part of the distribution API."""

import hashlib
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.containers.engine import docker

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"


@contextmanager
def registry(image: str, folder: Path) -> Iterator[str]:
    """Serve ``image`` to this engine and give the name to pull it by; nothing has that name before or afterwards."""
    docker("save", "--output", str(archive := folder / "image.tar"), image)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    archive.unlink()
    (entry,) = json.loads((folder / "manifest.json").read_text())
    layers = [_described(folder / name, LAYER) for name in entry["Layers"]]
    config = _described(folder / entry["Config"], CONFIG)
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    (manifest := folder / "served.json").write_text(json.dumps(content))
    blobs = {config["digest"]: folder / entry["Config"]}
    blobs |= {layer["digest"]: folder / name for layer, name in zip(layers, entry["Layers"], strict=True)}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, reference = self.path.removeprefix("/v2/").rpartition("/")
            path = manifest if kind.endswith("/manifests") else blobs.get(reference)
            if self.path == "/v2/" or path is None:
                self.send_response(200 if self.path == "/v2/" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", MANIFEST if path == manifest else "application/octet-stream")
            self.send_header("Content-Length", str(path.stat().st_size))
            self.send_header("Docker-Content-Digest", _described(path, "")["digest"] if path == manifest else reference)
            self.end_headers()
            if self.command == "GET":
                with path.open("rb") as file:
                    shutil.copyfileobj(file, self.wfile)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"127.0.0.1:{server.server_port}/antenna:served"
        try:
            yield name
        finally:
            docker("image", "rm", "--force", name, check=False)
            server.shutdown()


def _described(path: Path, media_type: str) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"mediaType": media_type, "size": path.stat().st_size, "digest": f"sha256:{digest}"}
