"""The file of traces: spans of requests and of their batches, as OTLP JSON that a collector accepts. Every line is read
by a strict reader of ExportTraceServiceRequest, by the rules of the OTLP specification for JSON."""
# ctest-cost: 10

import json
import os
import pathlib
import re
import secrets
import signal

from case import RedisCase

INTERNAL, CONSUMER, ERROR = 1, 5, 2
SPAN = {"traceId", "spanId", "parentSpanId", "traceState", "flags", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes",
        "events", "links", "droppedLinksCount", "status"}
VALUES = {"stringValue": str, "intValue": str, "doubleValue": (int, float)}


def parent(flags="01", trace=None, span=None):
    return f"00-{trace or secrets.token_hex(16)}-{span or secrets.token_hex(8)}-{flags}"


def only(thing, required, optional=()):
    assert required <= set(thing) <= required | set(optional), thing
    return thing


def of_hex(text, digits):
    assert re.fullmatch(rf"[0-9a-f]{{{digits}}}", text) and set(text) != {"0"}, text
    return text


def nanoseconds(text):
    assert re.fullmatch(r"1[6-9]\d{17}|2\d{18}", text), text  # a string, and a time of this century
    return int(text)


def attributes_of(pairs):
    read = {}
    for pair in pairs:
        only(pair, {"key", "value"})
        (kind, value), = pair["value"].items()
        assert isinstance(value, VALUES[kind]) and pair["key"] not in read, pair
        assert kind != "intValue" or re.fullmatch(r"\d+", value), pair
        read[pair["key"]] = int(value) if kind == "intValue" else value
    return read


def read_span(span):
    only(span, {"traceId", "spanId", "flags", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes"}, SPAN)
    of_hex(span["traceId"], 32), of_hex(span["spanId"], 16), of_hex(span.get("parentSpanId", "1" * 16), 16)
    assert span["kind"] in (INTERNAL, CONSUMER) and isinstance(span["flags"], int) and span["name"]
    start, end = nanoseconds(span["startTimeUnixNano"]), nanoseconds(span["endTimeUnixNano"])
    assert start <= end, span
    times = [start, *(nanoseconds(only(event, {"timeUnixNano", "name"})["timeUnixNano"]) for event in span.get("events", [])), end]
    assert times == sorted(times), span
    for link in span.get("links", []):
        only(link, {"traceId", "spanId"})
        of_hex(link["traceId"], 32), of_hex(link["spanId"], 16)
    if "status" in span:
        assert only(span["status"], {"code", "message"})["code"] == ERROR and isinstance(span["status"]["message"], str)
    return {**span, "attributes": attributes_of(span["attributes"]), "start": start, "end": end}


def read_line(line):
    request = only(json.loads(line), {"resourceSpans"})
    (resource_spans,) = request["resourceSpans"]
    only(resource_spans, {"resource", "scopeSpans"})
    resource = attributes_of(only(resource_spans["resource"], {"attributes"})["attributes"])
    assert resource["service.name"] == "sluice" and set(resource) == {"service.name", "service.version", "service.instance.id"}
    (scope_spans,) = resource_spans["scopeSpans"]
    only(scope_spans, {"scope", "spans"})
    assert scope_spans["scope"] == {"name": "sluice", "version": resource["service.version"]}
    (span,) = scope_spans["spans"]
    return read_span(span)


class Traces(RedisCase):
    def setUp(self):
        super().setUp()
        self.file = self.path("traces.jsonl")

    def spans(self, path=None):
        """Returns the spans of requests by their trace, and those of batches by their id."""
        with open(path or self.file, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.endswith("\n") or not text)
        spans = [read_line(line) for line in text.splitlines()]
        self.assertEqual(len({(span["traceId"], span["spanId"]) for span in spans}), len(spans))
        requests = {span["traceId"]: span for span in spans if span["kind"] == CONSUMER}
        return requests, {span["spanId"]: span for span in spans if span["kind"] == INTERNAL}

    def trace(self, make=None, **options):
        return (make or self.make_daemon)(self.server, "--traces", self.file, **options).start().wait_ready(self.client)

    def tasks(self, daemon):
        """Yields the name and blocked signals of each thread."""
        for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
            status = (task / "status").read_text()
            yield re.search(r"Name:\t(.*)", status)[1], int(re.search(r"SigBlk:\t(.*)", status)[1], 16)

    def ask(self, expected="done", stream=None, **fields):
        return self.sender.submit_fields({"text": "hello world", **fields}, expected=expected)

    def test_a_request_and_its_batch(self):
        daemon = self.trace()
        context = parent()
        request = self.ask(traceparent=context, tracestate="a=1,b=2", tenant="acme", encoding="f32")
        self.wait_finished(self.sender)
        name = daemon.worker_name(self.client)
        reply = self.sender.reply(request)
        blocked, = [masks for task, masks in self.tasks(daemon) if task == "traces"]
        self.assertTrue(blocked & 1 << signal.SIGTERM - 1, "signals are the I/O thread's")
        self.assertEqual(daemon.stop(), 0)
        requests, batches = self.spans()
        (span,), (batch,) = requests.values(), batches.values()
        self.assertEqual((span["traceId"], span["parentSpanId"], span["traceState"]), (context[3:35], context[36:52], "a=1,b=2"))
        self.assertEqual(span["flags"], 0x301)  # sampled, and the parent is in another process
        self.assertEqual(span["name"], "process sluice:{test}:requests")
        self.assertEqual([event["name"] for event in span["events"]], ["tokenised", "compute begins", "computed"])
        self.assertEqual(span["links"], [{"traceId": batch["traceId"], "spanId": batch["spanId"]}])
        self.assertGreaterEqual(span["attributes"].pop("sluice.queue_seconds"), 0)
        entry = reply["entry"]
        self.assertEqual(span["attributes"], {
            "gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "sluice", "gen_ai.request.model": "tiny",
            "gen_ai.usage.input_tokens": reply["tokens"], "gen_ai.embeddings.dimension.count": 64, "messaging.system": "redis",
            "messaging.operation.type": "process", "messaging.operation.name": "process", "messaging.client.id": name,
            "messaging.destination.name": "sluice:{test}:requests", "messaging.consumer.group.name": "sluice",
            "messaging.message.id": entry, "sluice.request": entry, "sluice.class": "normal", "sluice.texts": 1, "sluice.attempt": 1,
            "sluice.tenant": "acme"})
        self.assertNotIn("status", span)
        self.assertEqual((batch["name"], batch["flags"]), ("batch of embeddings", 1))
        self.assertEqual(batch["links"], [{"traceId": span["traceId"], "spanId": span["spanId"]}])
        self.assertNotEqual(batch["traceId"], span["traceId"])
        self.assertTrue(span["start"] <= batch["start"] <= batch["end"] <= span["end"])
        self.assertEqual(batch["attributes"]["gen_ai.usage.input_tokens"], reply["tokens"])

    def test_only_what_is_sampled(self):
        daemon = self.trace()
        sampled = [parent(flags) for flags in ("01", "03", "ff")]
        for context in (*sampled, parent("00"), parent("02"), parent(trace="0" * 32), "00-1-2-01", None):
            self.ask(**({"traceparent": context} if context else {}))
        self.wait_finished(self.sender)
        daemon.stop()
        self.assertEqual(set(self.spans()[0]), {context[3:35] for context in sampled})

    def test_links_of_batches(self):
        """Among many requests, some of several texts, some not sampled, each links to a batch that links back, once."""
        daemon = self.trace()
        contexts = [parent("01" if number % 3 else "00") for number in range(300)]
        for number, context in enumerate(contexts):
            texts = json.dumps([f"text {number} {i}" for i in range(number % 4 + 1)])
            self.sender.submit_fields({"inputs": texts, "traceparent": context}, expected="done")
        self.wait_finished(self.sender)
        daemon.stop()
        requests, batches = self.spans()
        self.assertEqual(set(requests), {context[3:35] for context in contexts if context.endswith("01")})
        for span in requests.values():
            (link,) = span["links"]
            batch = batches[link["spanId"]]
            self.assertEqual(batch["traceId"], link["traceId"])
            self.assertEqual(batch["links"].count({"traceId": span["traceId"], "spanId": span["spanId"]}), 1)
            self.assertLessEqual(len(batch["links"]), 128)
        self.assertEqual(len({batch["traceId"] for batch in batches.values()}), len(batches))

    def test_failures(self):
        """A refused request, and one that fails, is retried and becomes a dead letter, have a span for each run."""
        daemon = self.make_faulty(self.server, "--traces", self.file, "--backoff-ms", "20", faults=["error:{kernel}"])
        daemon.start().wait_ready(self.client)
        wrong, doomed = parent(), parent()
        self.ask(text="", traceparent=wrong, expected="bad_request")
        self.ask(text="the kernel", max_attempts="3", traceparent=doomed, expected="internal")
        self.wait_finished(self.sender)
        daemon.stop()
        with open(self.file, encoding="utf-8") as file:
            spans = [read_line(line) for line in file]
        refused, = [span for span in spans if span["traceId"] == wrong[3:35]]
        self.assertEqual((refused["attributes"]["error.type"], refused["status"]["message"]), ("bad_request", "text: must not be empty"))
        self.assertNotIn("links", refused)
        runs = [span for span in spans if span["traceId"] == doomed[3:35]]
        self.assertEqual([run["attributes"]["sluice.attempt"] for run in runs], [1, 2, 3])
        self.assertEqual({run["attributes"]["error.type"] for run in runs}, {"internal"})
        self.assertEqual(len({run["attributes"]["messaging.message.id"] for run in runs}), 3)
        self.assertEqual(len({run["attributes"]["sluice.request"] for run in runs}), 1)
        failed = [span for span in spans if span["kind"] == INTERNAL]
        self.assertEqual([batch["attributes"]["error.type"] for batch in failed], ["internal"] * 3)

    def test_who_rotates_the_file_only_renames_it(self):
        daemon = self.trace()
        contexts = [parent() for _ in range(2)]
        self.ask(traceparent=contexts[0])
        self.wait_until(lambda: len(self.spans()[0]) == 1, "the first span")
        os.rename(self.file, self.file + ".1")
        self.ask(traceparent=contexts[1])
        self.wait_until(lambda: os.path.exists(self.file) and len(self.spans()[0]) == 1, "the second span in a new file")
        daemon.stop()
        self.assertEqual([set(self.spans(path)[0]) for path in (self.file + ".1", self.file)], [{c[3:35]} for c in contexts])

    def test_a_file_that_cannot_be_opened_is_an_error_at_the_start(self):
        os.mkfifo(self.path("pipe"))
        for path in (self.path("nowhere", "x"), self.directory, self.path("pipe"), "/dev/null"):
            daemon = self.make_daemon(self.server, "--traces", path).start()
            self.assertNotEqual(daemon.wait_exit(), 0, path)
            self.assertIn("traces: ", daemon.read_log())
