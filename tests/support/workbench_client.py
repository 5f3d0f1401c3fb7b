"""Requests to a workbench as a browser sends them, or as others do."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit


class Client:
    """Requests to one address, with headers as a browser would send them, or not."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.query = parts.netloc, parts.query
        self.cookie = ""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        sent = {"Host": self.host, "Cookie": self.cookie, "Content-Type": "application/json"}
        sent |= {"Origin": f"http://{self.host}"} if method == "POST" else {}
        sent |= {key.replace("_", "-").title(): value for key, value in headers.items()}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        data = b"" if body is None else json.dumps(body).encode()
        for key, value in {**sent, "Content-Length": str(len(data))}.items():
            if value:
                connection.putheader(key, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        found = answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read().decode()
        connection.close()
        return found

    def enter(self) -> dict[str, str]:
        status, headers, _ = self.ask("GET", f"/?{self.query}")
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]
        return headers

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        status, _, found = self.ask("POST", f"/api/{path}", body, **headers)
        return status, json.loads(found) if found.startswith(("{", "[")) else found

    @contextmanager
    def events(self) -> Iterator[Iterator[dict[str, Any]]]:
        """Listen to the events that are sent to pages; the stream has begun when the block is entered."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", "/api/events", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.readline() == b": here\n"
        lines = iter(answer.readline, b"")
        yield (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))
        connection.close()
