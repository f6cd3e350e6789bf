"""TLS: the straight line over rediss://, against redis-server's own TLS; and all certificates that must be rejected."""
# ctest: threads
# ctest-cost: 40

import os
import re
import shutil
import subprocess
import sys

from case import SluiceCase
from certificates import Certificates
from corpus import texts
from daemon import SOURCE

sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
from blocks import only_block, put_in  # noqa: E402


class Tls(SluiceCase):
    def setUp(self):
        super().setUp()
        self.certificates = Certificates(self.path("certificates"))
        self.certificates.authority("ca")
        self.server = None

    def serve_tls(self, name="server", hosts=("localhost", "127.0.0.1"), clients="no", issue=True, options=()):
        """Starts a Redis with a certificate of that name, on a TLS port only (and its socket, for the test itself)."""
        if issue:
            self.certificates.issue(name, "ca", hosts)
        self.server = self.start_redis_tls(name, clients, options)
        self.client = self.server.client()
        self.sender = self.producer(self.server)

    def start_redis_tls(self, name, clients, options):
        certificates = self.certificates
        server = self.new_redis(options=["--tls-cert-file", certificates.crt(name), "--tls-key-file", certificates.key(name),
                                         "--tls-ca-cert-file", certificates.crt("ca"), "--tls-auth-clients", clients,
                                         *options])
        self.port = server.start_on_tcp("--tls-port")
        return server

    def url(self, host="127.0.0.1"):
        return f"rediss://{host}:{self.port}"

    def ca(self, name="ca"):
        return ["--tls-ca-file", self.certificates.crt(name)]

    def pair(self, name):
        return ["--tls-cert-file", self.certificates.crt(name), "--tls-key-file", self.certificates.key(name)]

    def roundtrip(self, seed, count=50):
        self.wait_finished(self.sender, self.sender.submit_many(texts(count, seed=seed), encoding="f32"))

    def assert_serves(self, *flags, host="127.0.0.1", **options):
        daemon = self.start_daemon(self.server, *flags, address=self.url(host), **options)
        self.roundtrip(1)
        self.assertEqual(daemon.stop(), 0)
        self.assert_clean(self.server)

    def assert_complains(self, words, *flags, host="127.0.0.1", url=None):
        """Asserts that the daemon says why it cannot connect, keeps running, and waits longer each time; `submit` says
        the same and exits 69."""
        daemon = self.make_daemon(self.server, *flags, address=url or self.url(host)).start()
        self.wait_until(lambda: self.waits(daemon) >= 4 or not daemon.running(), lambda: f"four tries:\n{daemon.read_log()}")
        log = daemon.read_log()
        self.assertTrue(daemon.running(), log)
        self.assertRegex(log, words)
        found = [int(wait) for wait in re.findall(r"redis_unavailable .*retry_in_ms=(\d+)", log)[:4]]
        for number, wait in enumerate(found):
            self.assertGreaterEqual(wait, 50 << number, found)
        self.assertEqual(daemon.stop(), 0)
        result = self.run_sluice("submit", "--redis", url or self.url(host), "--queue", self.queue, *flags, "hello")
        self.assertEqual(result.returncode, 69, result.stderr)
        self.assertRegex(result.stderr.decode(), words)
        self.assertEqual(result.stdout, b"")

    def waits(self, daemon):
        return daemon.read_log().count(" redis_unavailable ")

    def assert_refuses_to_start(self, words, *flags, url="rediss://127.0.0.1:1"):
        for command in (["serve", "--model", self.make_model()], ["get", "1-0"]):
            result = self.run_sluice(command[0], "--redis", url, *flags, *command[1:])
            self.assertIn(result.returncode, (65, 66, 78), result.stderr)
            self.assertRegex(result.stderr.decode(), words)

    # Valid certificates.

    def test_address(self):
        self.serve_tls()
        self.assert_serves(*self.ca())

    def test_name(self):
        """A host name is resolved, sent to the server, and searched for in the certificate."""
        self.serve_tls(hosts=["localhost"])
        self.assert_serves(*self.ca(), host="localhost")

    def test_system_list(self):
        """Without tls_ca_file the system's authorities are used; OpenSSL lets the environment name another list."""
        self.serve_tls()
        self.assert_serves(environment={"SSL_CERT_FILE": self.certificates.crt("ca")})

    def test_self_signed_and_known(self):
        """A server's own certificate in tls_ca_file is as good as an authority's."""
        self.certificates.self_signed("alone", ["127.0.0.1"])
        self.serve_tls("alone", issue=False)
        self.assert_serves(*self.ca("alone"))

    def test_client_certificate(self):
        self.certificates.issue("worker", "ca")
        self.serve_tls(clients="yes")
        self.assert_serves(*self.ca(), *self.pair("worker"))

    def test_redis_as_this_page_sets_it_up(self):
        """Runs the commands and settings of docs/redis.md in a test folder: clients without and with a certificate, and
        a renewal."""
        with open(os.path.join(SOURCE, "docs", "redis.md"), encoding="utf-8") as file:
            page = file.read()
        folder = self.path("page")

        def block(mark):
            return only_block(page, mark).replace("/etc/redis/tls", folder)

        def run(code):
            done = subprocess.run(["sh", "-ec", code], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout
        make = put_in(put_in(block("openssl x509 -req"), "chown redis redis.key\n", ""), "DNS:redis.example,IP:10.0.0.5", "DNS:localhost,IP:127.0.0.1")
        run(make)
        lines = [line.split() for line in block("tls-port 6380").splitlines()]
        self.server = self.new_redis(options=[word for name, value in lines if name not in ("port", "tls-port") for word in ("--" + name, value)])
        self.port = self.server.start_on_tcp("--tls-port")
        self.client, self.sender = self.server.client(), self.producer(self.server)
        ca = ["--tls-ca-file", folder + "/ca.crt"]
        self.assert_serves(*ca)
        self.assert_serves(*ca, host="localhost")

        self.client.config_set("tls-auth-clients", "yes")
        self.assert_complains("certificate of ours", *ca)
        begin, client = make.index("openssl req -newkey"), make.replace("redis.", "worker.")
        client = re.sub(r'-addext "[^"]*" ', "", client[begin:])
        self.assertNotIn("subjectAltName", client)
        run(f"cd {folder}\n{client}")
        self.assert_serves(*ca, "--tls-cert-file", folder + "/worker.crt", "--tls-key-file", folder + "/worker.key")

        shown = f"openssl s_client -connect 127.0.0.1:{self.port} </dev/null 2>/dev/null | openssl x509 -noout -serial"
        self.client.config_set("tls-auth-clients", "no")
        before = run(shown)
        run(f"cd {folder}\n{make[begin:]}")
        self.assertEqual(run(shown), before)
        renew = put_in(block("config set tls-cert-file"), "6380 -h redis.example", f"{self.port} -h localhost")
        self.assertEqual(run(renew), "OK\n")
        self.assertNotEqual(run(shown), before)
        self.assert_serves(*ca)

    def test_tls_1_2(self):
        self.serve_tls(options=["--tls-protocols", "TLSv1.2"])
        self.assert_serves(*self.ca())

    def test_load(self):
        """Long texts and long replies are exchanged, and Redis is killed in between."""
        self.serve_tls()
        self.start_daemon(self.server, *self.ca(), address=self.url())
        load = self.start_load(self.server, longest=4000)
        for round in range(5):
            self.sender.submit_fields({"text": "long " * 200000, "encoding": "f32"}, text="long " * 200000)
            self.wait_until(lambda: self.pending(self.client) > 0, "entries in the worker's hands")
            self.server.kill()
            self.journal.fault("redis kill")
            self.server.start()
        load.stop()
        self.wait_finished(load.producer)
        self.wait_empty(self.sender)
        self.assert_clean(self.server, faults=["redis kill"])

    def test_submit_and_get(self):
        self.serve_tls()
        self.start_daemon(self.server, *self.ca(), address=self.url())
        for host in ("127.0.0.1", "localhost"):
            where = ["--redis", self.url(host), "--queue", self.queue, *self.ca()]
            result = self.run_sluice("submit", *where, "--wait", "hello")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(b'"done"', result.stdout)
            result = self.run_sluice("submit", *where, "--id", host + "-1", "hello")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.wait_until(lambda: self.client.exists(self.sender.key(f"reply:{host}-1")), "a reply")
            result = self.run_sluice("get", *where, host + "-1")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(b'"done"', result.stdout)

    # Invalid certificates.

    def test_expired(self):
        self.certificates.issue("old", "ca", ["127.0.0.1"], days=-1)
        self.serve_tls("old", issue=False)
        self.assert_complains("the server's certificate has expired", *self.ca())

    def test_wrong_host(self):
        self.serve_tls(hosts=["other.example", "10.1.2.3"])
        self.assert_complains(r"the server's certificate is for another host than 127\.0\.0\.1", *self.ca())
        self.assert_complains("the server's certificate is for another host than localhost", *self.ca(), host="localhost")

    def test_name_in_the_subject_only(self):
        """A host name outside subjectAltName is accepted by old custom; an address never is."""
        self.serve_tls("127.0.0.1", hosts=["localhost"])
        self.assert_complains("for another host", *self.ca())

    def test_self_signed(self):
        self.certificates.self_signed("alone", ["127.0.0.1"])
        self.serve_tls("alone", issue=False)
        self.assert_complains(r"self-signed, and it is not in \S+/ca\.crt", *self.ca())

    def test_unknown_authority(self):
        self.certificates.authority("stranger")
        self.serve_tls()
        self.assert_complains(r"signed by an authority that is not in \S+/stranger\.crt", *self.ca("stranger"))
        self.assert_complains("signed by an authority that is not in the system's list")

    def test_client_certificate_missing(self):
        self.serve_tls(clients="yes")
        self.assert_complains("certificate of ours", *self.ca())

    def test_client_certificate_missing_in_tls_1_2(self):
        self.serve_tls(clients="yes", options=["--tls-protocols", "TLSv1.2"])
        self.assert_complains("certificate of ours", *self.ca())

    def test_client_certificate_of_a_stranger(self):
        self.certificates.authority("stranger").issue("worker", "stranger")
        self.serve_tls(clients="yes")
        self.assert_complains("does not believe our certificate|certificate of ours", *self.ca(), *self.pair("worker"))

    def test_plain_server(self):
        self.server = self.new_redis()
        self.port = self.server.start_on_tcp()
        self.assert_complains("TLS", *self.ca())

    def test_plain_client(self):
        """A plain redis:// client connects to a TLS port."""
        self.serve_tls()
        self.assert_complains("rediss://", url=f"redis://127.0.0.1:{self.port}")

    # Files.

    def test_files_that_cannot_be_used(self):
        self.certificates.issue("worker", "ca").issue("other", "ca").lock_key("worker", "locked")
        absent, garbage = self.path("absent.pem"), self.write("garbage.pem", "no certificate")
        self.assert_refuses_to_start(r"tls_ca_file \S+absent.pem: No such file", "--tls-ca-file", absent)
        self.assert_refuses_to_start(r"tls_ca_file \S+garbage.pem: no certificate", "--tls-ca-file", garbage)
        self.assert_refuses_to_start(r"tls_cert_file \S+garbage.pem: no certificate", "--tls-cert-file", garbage,
                                     "--tls-key-file", self.certificates.key("worker"))
        for key in ("other", "locked"):
            self.assert_refuses_to_start(rf"tls_key_file \S+{key}.key: no unencrypted key of that certificate", "--tls-cert-file",
                                         self.certificates.crt("worker"), "--tls-key-file", self.certificates.key(key))
        self.assert_refuses_to_start("go together", "--tls-cert-file", self.certificates.crt("worker"))

    def test_files_without_tls(self):
        """A user who names an authority expects an encrypted connection."""
        self.assert_refuses_to_start("not a rediss:// address", *self.ca(), url="redis://127.0.0.1:1")

    def test_renewed_certificates(self):
        """A server's certificate expires and is renewed, and so are the worker's own files: no restart of the worker."""
        self.certificates.authority("next").issue("worker", "ca").issue("old", "ca", ["127.0.0.1"], days=-1)
        self.serve_tls(clients="yes")
        trusted, own = self.path("trusted"), Certificates(self.path("own"))
        shutil.copy(self.certificates.crt("ca"), trusted)
        for path, target in ((self.certificates.crt("worker"), own.crt("w")), (self.certificates.key("worker"), own.key("w"))):
            shutil.copy(path, target)
        daemon = self.start_daemon(self.server, "--tls-ca-file", trusted, "--tls-cert-file", own.crt("w"), "--tls-key-file",
                                   own.key("w"), address=self.url())
        self.roundtrip(1)
        self.move_server("old", "ca")
        self.wait_until(lambda: "has expired" in daemon.read_log(), "a complaint")
        # Now another authority signs all certificates.
        self.certificates.issue("new", "next", ["127.0.0.1"]).issue("worker", "next")
        shutil.copy(self.certificates.crt("next"), trusted)
        for path, target in ((self.certificates.crt("worker"), own.crt("w")), (self.certificates.key("worker"), own.key("w"))):
            shutil.copy(path, target + ".tmp")
            os.replace(target + ".tmp", target)
        self.move_server("new", "next")
        self.roundtrip(2)
        self.assert_clean(self.server)
        self.assertEqual(daemon.stop(), 0)

    def move_server(self, name, authority):
        """Restarts the same Redis with another certificate."""
        self.server.stop()
        options = self.server.options
        for flag, value in (("--tls-cert-file", self.certificates.crt(name)), ("--tls-key-file", self.certificates.key(name)),
                            ("--tls-ca-cert-file", self.certificates.crt(authority))):
            options[options.index(flag) + 1] = value
        self.server.start()
