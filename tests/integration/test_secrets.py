"""Passwords: from the URL, the environment or a file, for the default user or another one; never in a log or in `ps`."""

import os

from case import SluiceCase
from daemon import BINARY
from ports import free_port

PASSWORD = "s3cret-Passw0rd-xyzzy"


class Secrets(SluiceCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_redis(options=["--requirepass", PASSWORD])
        self.server.password = PASSWORD
        self.client = self.server.client()

    def assert_serves(self, daemon):
        daemon.start().wait_ready(self.client)
        self.assert_hidden(daemon)
        sender = self.producer(self.server)
        request = sender.submit("hello world", encoding="f32")
        self.wait_finished(sender, [request])
        self.assert_hidden(daemon)
        self.assertEqual(daemon.stop(), 0)
        self.assert_hidden(daemon)

    def assert_hidden(self, daemon):
        self.assertNotIn(PASSWORD, daemon.read_log())
        if daemon.running():
            with open(f"/proc/{daemon.pid}/cmdline", "rb") as file:
                self.assertNotIn(PASSWORD.encode(), file.read())

    def url(self, credentials):
        """A redis:// URL of the same server, because a socket path has no place for credentials."""
        self.server.cleanup()
        port = self.server.start_on_tcp()
        self.add_user()
        return f"redis://{credentials}127.0.0.1:{port}/0"

    def add_user(self, keys="*"):
        self.client = self.server.client()
        self.client.acl_setuser("worker", enabled=True, reset=True, passwords=["+" + PASSWORD + "2"], keys=[keys],
                                channels=["*"], categories=["+@all"])

    def test_environment(self):
        self.assert_serves(self.make_daemon(self.server, environment={"SLUICE_REDIS_PASSWORD": PASSWORD}))

    def test_file(self):
        path = self.write("password", PASSWORD + "\n")
        self.assert_serves(self.make_daemon(self.server, "--redis-password-file", path))

    def test_a_file_that_the_user_may_not_read(self):
        """The message names the user, who under systemd is not the one that made the file, and the remedy."""
        path = self.write("password", PASSWORD)
        os.chmod(path, 0)
        unprivileged = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else ["env"]
        for flags in (("--redis-password-file", path), ("--redis", self.server.socket, "--http", f"127.0.0.1:{free_port()}", "--http-token-file", path)):
            done = self.run_sluice(*unprivileged[1:], BINARY, "serve", "--model", self.make_model(), *flags, binary=unprivileged[0])
            self.assertEqual(done.returncode, 77, done.stderr)
            self.assertRegex(done.stderr.decode(), rf"{flags[-2][2:].replace('-', '_')}: cannot open {path}: Permission denied to user \w+ \({os.geteuid()}\); "
                                                   "under systemd, LoadCredential hands it a file of root's: see docs/admin-api.md")

    def test_file_from_environment(self):
        path = self.write("password", PASSWORD)
        self.assert_serves(self.make_daemon(self.server, environment={"SLUICE_REDIS_PASSWORD_FILE": path}))

    def test_config_file(self):
        path = self.write("sluice.json", '{ // a comment\n "redis_password": "%s" }' % PASSWORD)
        self.assert_serves(self.make_daemon(self.server, "--config", path))

    def test_url(self):
        self.assert_serves(self.make_daemon(self.server, address=self.url(f":{PASSWORD}@")))

    def test_url_from_environment(self):
        url = self.url(f"default:{PASSWORD}@")
        self.assert_serves(self.make_daemon(self.server, address=None, environment={"SLUICE_REDIS": url}))

    def test_acl_user(self):
        self.assert_serves(self.make_daemon(self.server, address=self.url(f"worker:{PASSWORD}2@")))

    def test_acl_user_with_password_file(self):
        path = self.write("password", PASSWORD + "2\n")
        self.assert_serves(self.make_daemon(self.server, "--redis-password-file", path, address=self.url("worker@")))

    def assert_refused(self, daemon):
        daemon.start()
        self.assertEqual(daemon.wait_exit(), 77, daemon.read_log())
        self.assertNotIn(PASSWORD, daemon.read_log())
        self.assertRegex(daemon.read_log().lower(), "password|auth|denied")

    def test_wrong_password(self):
        self.assert_refused(self.make_daemon(self.server, environment={"SLUICE_REDIS_PASSWORD": PASSWORD + "-wrong"}))

    def test_no_password(self):
        self.assert_refused(self.make_daemon(self.server))

    def test_wrong_password_in_url(self):
        self.assert_refused(self.make_daemon(self.server, address=self.url(f":{PASSWORD}-wrong@")))

    def test_user_without_rights(self):
        path = self.write("password", PASSWORD + "2\n")
        url = self.url("worker@")
        self.add_user(keys="nothing:*")
        daemon = self.make_daemon(self.server, "--redis-password-file", path, address=url).start()
        self.assertEqual(daemon.wait_exit(), 77, daemon.read_log())

    def test_missing_password_file(self):
        daemon = self.make_daemon(self.server, "--redis-password-file", self.path("absent")).start()
        self.assertNotEqual(daemon.wait_exit(), 0)
        self.assertIn("absent", daemon.read_log())

    def test_producer_commands_take_it_too(self):
        """submit and get read the password from the environment."""
        daemon = self.make_daemon(self.server, environment={"SLUICE_REDIS_PASSWORD": PASSWORD}).start()
        daemon.wait_ready(self.client)
        secret = {"SLUICE_REDIS_PASSWORD": PASSWORD}
        result = self.run_sluice("submit", "--redis", self.server.socket, "--queue", self.queue, "--wait", "hello",
                                 environment=secret)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = self.run_sluice("submit", "--redis", self.server.socket, "--queue", self.queue, "hello",
                                 environment={"SLUICE_REDIS_PASSWORD": "wrong"})
        self.assertEqual(result.returncode, 77, result.stderr)
        self.assertNotIn(b"wrong\"", result.stderr)
        self.assertIn(b"The user was default, because the address names none: redis://USER@HOST", result.stderr)
        result = self.run_sluice("submit", "--redis", f"redis+unix://worker@{self.server.socket}", "hello", environment={"SLUICE_REDIS_PASSWORD": "wrong"})
        self.assertEqual((result.returncode, b"The user was" in result.stderr), (77, False))

    def test_config_shows_no_secret(self):
        path = self.write("password", PASSWORD)
        for environment, flags in (({"SLUICE_REDIS_PASSWORD": PASSWORD}, []), ({}, ["--redis-password-file", path]),
                                   ({}, ["--redis", f"redis://user:{PASSWORD}@localhost"])):
            result = self.run_sluice("config", *flags, environment=environment)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn(PASSWORD.encode(), result.stdout + result.stderr)
