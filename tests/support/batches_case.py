"""Cases with the Files and Batches API of a gateway."""

import json
import os

from batch_case import BatchCase
from daemon import BINARY
from gateway_case import GatewayCase

SHIM = os.path.join(os.path.dirname(BINARY), "tests", "libcalls_shim.so")
ENDED = ("completed", "failed", "expired", "cancelled")


class BatchesCase(GatewayCase, BatchCase):
    @property
    def data(self):
        return self.path("data")

    def start_with_data(self, *flags):
        return self.start_gateway(None, "--data", self.data, *flags)

    def restart_gateway(self, *before):
        """kill -9, then the same command, perhaps with a program before it; returns when it answers."""
        self.gateway.kill()
        argv = self.gateway.argv
        self.gateway.argv = [*before, *argv]
        self.gateway.start()
        self.gateway.argv = argv
        self.wait_until(lambda: self.ask("GET", "/v1/batches").status == 200, "the gateway to listen", ignore=(ConnectionError,))

    def upload(self, content, filename="requests.jsonl", purpose="batch", gateway=None, expiry=()):
        parts = [(f'name="purpose"', purpose.encode()), (f'name="file"; filename="{filename}"', content)]
        parts += [(f'name="expires_after[{name}]"', str(value).encode()) for name, value in zip(("anchor", "seconds"), expiry)]
        body = b"".join(b"--limit\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + part + b"\r\n" for head, part in parts)
        return self.ask("POST", "/v1/files", body + b"--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}, gateway)

    def create(self, file, gateway=None, **more):
        return self.ask("POST", "/v1/batches", {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h", **more},
                        gateway=gateway)

    def begin(self, content, gateway=None, **more):
        """Uploads a file and makes its batch; returns the batch's id."""
        file = self.upload(content, gateway=gateway)
        self.assertEqual(file.status, 200, file.body)
        made = self.create(file.json["id"], gateway, **more)
        self.assertEqual((made.status, made.json["status"]), (200, "validating"), made.body)
        return made.json["id"]

    def look(self, batch, gateway=None):
        answer = self.ask("GET", "/v1/batches/" + batch, gateway=gateway)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json

    def end(self, batch, status="completed", timeout=240):
        """Waits for the end of a batch; returns its object."""
        self.wait_until(lambda: self.look(batch)["status"] in ENDED, lambda: f"the end of {self.look(batch)}", timeout)
        found = self.look(batch)
        self.assertEqual(found["status"], status, found)
        self.assertIsNotNone(found[status + "_at"])
        return found

    def outputs(self, batch):
        """The bytes of both outputs of a batch that has ended; "" for one that it lacks."""
        contents = []
        for name in ("output_file_id", "error_file_id"):
            if batch[name] is None:
                contents.append(b"")
                continue
            answer = self.ask("GET", f"/v1/files/{batch[name]}/content")
            about = self.ask("GET", f"/v1/files/{batch[name]}").json
            self.assertEqual((answer.status, about["bytes"], about["purpose"]), (200, len(answer.body), "batch_output"))
            contents.append(answer.body)
        return contents

    def wanted(self, content):
        """The outputs of `sluice batch` on this machine."""
        self.write("wanted.jsonl", content)
        result = self.run_sluice("batch", "--model", self.make_model(), "--precision", "f32", self.path("wanted.jsonl"), "--output",
                                 self.path("straight.jsonl"), "--overwrite", timeout=300)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        errors = self.path("straight.errors.jsonl")
        return [self.content(self.path("straight.jsonl")), self.content(errors) if os.path.exists(errors) else b""]

    def check_lines(self, batch, content):
        """Asserts that each request has one line in one of the outputs; returns the codes of the errors."""
        contents = self.outputs(batch)
        good, failed = ([json.loads(line) for line in part.splitlines()] for part in contents)
        wanted = [json.loads(line)["custom_id"] for line in content.splitlines()]
        self.assertEqual(sorted([line["custom_id"] for line in good + failed]), sorted(wanted))
        counts = batch["request_counts"]
        self.assertEqual((counts["total"], counts["completed"], counts["failed"]), (len(wanted), len(good), len(failed)))
        return [line["error"]["code"] if line["error"] else line["response"]["status_code"] for line in failed]

    def left(self):
        """The files of batches, without those of their objects."""
        return [name for name in os.listdir(os.path.join(self.data, "batches")) if not name.endswith(".json")]

    def wait_nothing_left(self):
        """Files of a batch go after its end is written."""
        self.wait_until(lambda: self.left() == [], lambda: str(self.left()))
