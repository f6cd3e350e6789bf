"""A stand-in for Elasticsearch 9, whose server neither Debian nor PyPI has: it takes the official client's requests for making
an index and for `helpers.bulk`, and refuses those whose form a server would refuse. It does not search."""

import http.server
import json
import math
import threading

VERSION = "9.5.1"
JSON = "application/vnd.elasticsearch+json; compatible-with=9"
LINES = "application/vnd.elasticsearch+x-ndjson; compatible-with=9"


class Refused(Exception):
    def __init__(self, status, kind, reason):
        super().__init__(reason)
        self.status, self.kind = status, kind

    def body(self):
        return {"type": self.kind, "reason": str(self)}


def need(condition, status, kind, reason):
    if not condition:
        raise Refused(status, kind, reason)


class Index:
    def __init__(self, mappings):
        fields = mappings.get("properties", {})
        need(set(mappings) == {"properties"}, 400, "mapper_parsing_exception", f"unknown mapping in {mappings}")
        for name, field in fields.items():
            need(field.get("type") == "dense_vector" and set(field) <= {"type", "dims"}, 400, "mapper_parsing_exception", name)
        self.dims = {name: field.get("dims") for name, field in fields.items()}
        self.documents = {}

    def put(self, name, source):
        """A vector must be like the field's first one: as many finite numbers, and not all 0, because cosines are asked for."""
        for field, dims in self.dims.items():
            vector = source.get(field)
            numbers = isinstance(vector, list) and all(type(value) in (int, float) and math.isfinite(value) for value in vector)
            need(numbers and 0 < len(vector) <= 4096, 400, "document_parsing_exception", f"[{field}] is no vector")
            need(dims in (None, len(vector)), 400, "document_parsing_exception", f"[{field}] has {len(vector)} dimensions, not {dims}")
            need(any(vector), 400, "document_parsing_exception", f"[{field}] has no direction")
            self.dims[field] = len(vector)
        self.documents[name] = source


class Elasticsearch:
    """`with Elasticsearch() as server`: listens on `server.url`; `server.indices` is what it was given."""

    def __init__(self):
        self.indices = {}
        self.requests = 0
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"elasticsearch": self}))
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def create(self, name, body):
        need(name not in self.indices, 400, "resource_already_exists_exception", name)
        need(set(body) <= {"mappings"}, 400, "parse_exception", f"unknown key in {sorted(body)}")
        self.indices[name] = Index(body.get("mappings", {"properties": {}}))
        return {"acknowledged": True, "shards_acknowledged": True, "index": name}

    def bulk(self, text):
        need(text.endswith("\n"), 400, "illegal_argument_exception", "a bulk request ends with a line feed")
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        need(len(lines) % 2 == 0, 400, "illegal_argument_exception", "an action has no document")
        items = [self.index_one(action, source) for action, source in zip(lines[::2], lines[1::2])]
        return {"took": 1, "errors": any("error" in item["index"] for item in items), "items": items}

    def index_one(self, action, source):
        need(list(action) == ["index"] and set(action["index"]) == {"_index", "_id"}, 400, "illegal_argument_exception",
             f"the action {action}")
        name, key = action["index"]["_index"], action["index"]["_id"]
        need(isinstance(key, str) and 0 < len(key.encode()) <= 512, 400, "illegal_argument_exception", f"the id {key!r}")
        answer = {"_index": name, "_id": key}
        try:
            need(name in self.indices, 404, "index_not_found_exception", name)
            new = key not in self.indices[name].documents
            self.indices[name].put(key, source)
            answer.update(status=201 if new else 200, result="created" if new else "updated")
        except Refused as refused:
            answer.update(status=refused.status, error=refused.body())
        return {"index": answer}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def route(self, body):
        content = self.headers["Content-Type"]
        need("compatible-with=9" in (self.headers["Accept"] or ""), 400, "media_type_header_exception", "Accept")
        if (self.command, self.path) == ("GET", "/"):
            return {"version": {"number": VERSION}, "tagline": "You Know, for Search"}
        if self.command in ("PUT", "POST") and self.path == "/_bulk":
            need(content == LINES, 406, "media_type_header_exception", f"Content-Type {content}")
            return self.elasticsearch.bulk(body)
        if self.command == "PUT" and self.path.count("/") == 1:
            need(content == JSON, 406, "media_type_header_exception", f"Content-Type {content}")
            return self.elasticsearch.create(self.path[1:], json.loads(body))
        raise Refused(405, "illegal_argument_exception", f"{self.command} {self.path}")

    def answer(self):
        self.elasticsearch.requests += 1
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode("utf-8")
        try:
            status, said = 200, self.route(body)
        except Refused as refused:
            status, said = refused.status, {"error": refused.body(), "status": refused.status}
        sent = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_PUT = do_POST = do_DELETE = answer
