"""Servers on loopback: an S3 service in a separate process, and one in between that breaks connections."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.request import Request, urlopen

_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Service:
    """An S3 service that is spoken to in plain HTTP, without a client library."""

    def __init__(self, port: int) -> None:
        self.port = port

    def put(self, path: str, data: bytes = b"") -> None:
        """Make a bucket, or an object."""
        self._ask(path, data, "PUT")

    def get(self, path: str) -> bytes:
        """Return the bytes of an object."""
        return self._ask(path, None, "GET")

    def _ask(self, path: str, data: bytes | None, method: str) -> bytes:
        # The service does not check signatures, but wants to see one.
        signature = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=s"
        headers = {"Content-Type": "application/octet-stream", "Authorization": signature}
        request = Request(f"http://127.0.0.1:{self.port}/{path}", data, headers, method=method)
        with urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
        return found

    def keys(self, bucket: str) -> list[str]:
        """List the objects of a bucket."""
        return re.findall("<Key>(.*?)</Key>", self.get(f"{bucket}?list-type=2").decode())

    def uploads(self, bucket: str) -> list[str]:
        """List the multipart uploads that were neither completed nor aborted."""
        return re.findall("<UploadId>(.*?)</UploadId>", self.get(f"{bucket}?uploads").decode())


@contextmanager
def service() -> Iterator[Service]:
    """Run an S3 service."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        try:
            yield Service(int(process.stdout.readline()))
        finally:
            process.kill()


Rule = Callable[[str, str], bool]
"""Whether the connection breaks, by the method and the path of a request."""


@contextmanager
def breaking(service: Service, rule: Rule) -> Iterator[int]:
    """Pass requests on to a service, but cut those that a rule names in the middle; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("content-length", 0))
            cut = rule(self.command, self.path)
            body = self.rfile.read(length // 2 if cut else length)
            if cut and length:
                self.cut()
                return
            onward = http.client.HTTPConnection("127.0.0.1", service.port)
            onward.request(self.command, self.path, body, dict(self.headers))
            answer = onward.getresponse()
            data = answer.read()
            onward.close()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.cut()

        def cut(self) -> None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.handle_any)
    with running(Handler) as port:
        yield port


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve on loopback; yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Files(BaseHTTPRequestHandler):
    """Serves the bytes in `contents`; a subclass has its own, and may answer some paths in another way."""

    contents: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        data = self.contents.get(self.path.partition("?")[0])
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def environment(folder: Path, port: int = 9) -> dict[str, str]:
    """Return the environment of a command that speaks to a service, with an own folder for temporary files."""
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "key-of-the-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_MAX_ATTEMPTS": "1",
        "FSSPEC_S3": '{"default_block_size": 5242880}',
        "TMPDIR": str(folder),
    }
