"""The stand-in for Elasticsearch, by plain HTTP: the requests that it takes, and those that it refuses as a server would."""
# ctest-once

import http.client
import json
import unittest

import elasticsearch_stub
from elasticsearch_stub import JSON, LINES


class Stub(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(elasticsearch_stub.Elasticsearch())
        self.client = http.client.HTTPConnection(self.server.url.removeprefix("http://"), timeout=60)
        self.addCleanup(self.client.close)

    def send(self, method, path, body, content=JSON, accept=JSON, status=200):
        self.client.request(method, path, body, {"Content-Type": content, "Accept": accept})
        answer = self.client.getresponse()
        said = json.loads(answer.read())
        self.assertEqual(answer.status, status, said)
        self.assertEqual(answer.headers["X-Elastic-Product"], "Elasticsearch")  # or the client refuses it
        return said

    def create(self, field={"type": "dense_vector"}, **options):
        return self.send("PUT", "/docs", json.dumps({"mappings": {"properties": {"vector": field}}}), **options)

    def bulk(self, *documents, **options):
        lines = [line for name, source in documents for line in ({"index": {"_index": "docs", "_id": name}}, source)]
        return self.send("PUT", "/_bulk", "".join(json.dumps(line) + "\n" for line in lines), LINES, **options)

    def test_documents_arrive(self):
        self.create()
        self.assertFalse(self.bulk(("a", {"vector": [1, 0.5]}), ("b", {"vector": [2, 0]}))["errors"])
        self.assertFalse(self.bulk(("b", {"vector": [3, 0]}))["errors"])
        self.assertEqual(self.server.indices["docs"].documents, {"a": {"vector": [1, 0.5]}, "b": {"vector": [3, 0]}})

    def test_vectors_that_no_index_takes(self):
        self.create()
        self.bulk(("a", {"vector": [1, 0.5]}))
        for vector in ([1], [1, 2, 3], [0, 0], [1, None], "1,2", None, [True, True]):
            item = self.bulk(("bad", {"vector": vector}))["items"][0]["index"]
            self.assertEqual((item["status"], item["error"]["type"]), (400, "document_parsing_exception"), vector)
        self.assertEqual(list(self.server.indices["docs"].documents), ["a"])

    def test_requests_of_another_form(self):
        self.assertEqual(self.bulk(("a", {"vector": [1]}))["items"][0]["index"]["status"], 404)  # no such index
        self.create(field={"type": "text"}, status=400)
        self.create(accept="application/json", status=400)
        self.create(content="application/json", status=406)
        self.create()
        self.create(status=400)  # it is there already
        for name in (5, "", "x" * 513):
            self.bulk((name, {"vector": [1]}), status=400)
        self.send("PUT", "/_bulk", '{"index":{"_index":"docs","_id":"a"}}\n', LINES, status=400)
        self.send("PUT", "/_bulk", '{"index":{"_index":"docs","_id":"a"}}\n{"vector":[1]}', LINES, status=400)
        self.send("DELETE", "/docs", "", status=405)


if __name__ == "__main__":
    unittest.main()
