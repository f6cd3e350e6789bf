"""Finding the master: by asking sentinels, or several servers in turn; and the errors when there is none."""
# ctest: threads
# ctest-cost: 10

import os
import re
import subprocess
import sys

import redis

import acl
from case import SluiceCase
from certificates import Certificates
from corpus import texts
from daemon import SOURCE
from resp_server import RespServer, array, error
from sentinel import Group, TcpRedis

sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
import blocks  # noqa: E402


class Sentinels(SluiceCase):
    def group(self, **options):
        group = Group(self.directory, self.children, **options)
        self.sender = self.producer(group.servers[0])
        return group

    def roundtrip(self, seed, count=50):
        self.wait_finished(self.sender, self.sender.submit_many(texts(count, seed=seed), encoding="f32"))

    def fake_sentinel(self, answer):
        """Starts a server that answers SENTINEL GET-MASTER-ADDR-BY-NAME with the result of `answer`."""
        server = RespServer(lambda words: answer() if words[0] == b"SENTINEL" else error("ERR unknown command"))
        self.children.append(server)
        return server

    def submit(self, url, *flags, environment=None):
        return self.run_sluice("submit", "--redis", url, "--queue", self.queue, *flags, "hello", environment=environment)

    def test_straight_line(self):
        """Two of three sentinels are gone; the remaining one is asked, and remembered."""
        group = self.group()
        group.sentinels[0].kill()
        group.sentinels[1].kill()
        daemon = self.start_daemon(group.servers[0], address=group.url())
        self.roundtrip(1)
        for _ in range(3):
            group.servers[0].client().client_kill_filter(_type="normal", skipme=True)
            self.roundtrip(2)
        result = self.submit(group.url(), "--wait")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b'"done"', result.stdout)
        self.assertEqual(daemon.stop(), 0)

    def test_passwords(self):
        """The sentinels' password is independent of the server's login in the URL."""
        group = self.group(password="sentinel-word", server_password="server-word")
        secret = self.write("secret", "sentinel-word\n")
        url = group.url(login=":server-word@")
        daemon = self.start_daemon(group.servers[0], "--sentinel-password-file", secret, address=url)
        self.roundtrip(1)
        result = self.submit(url, "--wait", environment={"SLUICE_SENTINEL_PASSWORD": "sentinel-word"})
        self.assertEqual(result.returncode, 0, result.stderr)
        for wrong in ({}, {"SLUICE_SENTINEL_PASSWORD": "mistaken"}):
            result = self.submit(url, environment=wrong)
            self.assertEqual(result.returncode, 77, result.stderr)
            self.assertRegex(result.stderr.decode(), "NOAUTH|WRONGPASS")
        self.assertEqual(daemon.stop(), 0)
        for word in ("sentinel-word", "server-word"):
            self.assertNotIn(word, daemon.read_log())
        result = self.submit(f"redis://127.0.0.1:{group.servers[0].port}", "--sentinel-password-file", secret)
        self.assertEqual(result.returncode, 65, result.stderr)
        self.assertIn(b"not a redis+sentinel:// address", result.stderr)

    def test_encrypted(self):
        """rediss+sentinel:// uses TLS for the sentinels and for the server that they name, through a failover."""
        certificates = Certificates(self.path("certificates"))
        certificates.authority("ca").issue("all", "ca", ["127.0.0.1"])
        group = self.group(replicas=1, sentinels=1, tls=(certificates.crt("all"), certificates.key("all"), certificates.crt("ca")))
        url, ca = group.url("rediss+sentinel"), ["--tls-ca-file", certificates.crt("ca")]
        daemon = self.start_daemon(group.servers[0], *ca, address=url)
        self.roundtrip(1)
        daemon.wait_ready(group.fail_over().client())
        result = self.submit(url, *ca, "--wait")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = self.submit(url)
        self.assertEqual(result.returncode, 69, result.stderr)
        self.assertIn(b"signed by an authority that is not in", result.stderr)
        self.assertEqual(daemon.stop(), 0)

    def test_a_second_redis_as_this_page_sets_it_up(self):
        """The blocks of docs/redis.md: replicas and sentinels log in as sluice-replica, and its rights are enough for a
        failover and for the old master's return as a replica."""
        with open(os.path.join(SOURCE, "docs", "redis.md"), encoding="utf-8") as file:
            page = file.read()
        page = page[page.index("### A second Redis"):page.index("## Limits that close")]
        os.makedirs(self.path("etc/sluice/secrets"))
        os.makedirs(self.path("etc/redis"))
        for role in (*acl.ROLES, "admin"):
            self.write(f"etc/sluice/secrets/{role}_password", acl.PASSWORD + "\n")

        def typed(mark):
            code = blocks.only_block(page, mark).replace("/usr/local/share/sluice/", os.path.join(SOURCE, "config/")).replace("/etc/", self.path("etc/"))
            code = re.sub("(?m)^(chown|systemctl) .*$", "", code).replace("-o redis ", "").replace(" && redis-cli acl load", "")
            subprocess.run(["sh", "-ec", code], check=True, timeout=60)
        typed("make-users.sh")
        self.write("etc/redis/redis.conf", "")
        typed("masterauth")
        with open(self.path("etc/redis/redis.conf"), encoding="ascii") as file:
            options = [word for line in file for name, value in [line.split()] for word in ("--" + name, value)]
        servers = [TcpRedis(self.directory, name, options=(*options, "--aclfile", self.path("etc/redis/users.acl"))) for name in ("first", "second")]
        for server in servers:
            server.user, server.password, server.guarded = "admin", acl.PASSWORD, True
        typed("sentinel monitor")
        with open(self.path("etc/redis/sentinel.conf"), encoding="ascii") as file:
            login = [line.replace(" sluice ", f" {Group.NAME} ") for line in file.read().splitlines() if line.startswith("sentinel auth-")]
        self.assertEqual(len(login), 2)
        group = Group(self.directory, self.children, servers=servers, more=login)
        self.queue = "default"
        self.sender = self.producer(servers[0])
        login = {"environment": {"SLUICE_REDIS_PASSWORD": acl.PASSWORD}}
        self.start_daemon(servers[0], address=group.url(login="sluice-worker@"), **login)
        self.roundtrip(1)
        servers[0].kill()
        self.sender = self.producer(group.wait_master(other_than=servers[0]))
        self.roundtrip(2)
        servers[0].start()
        group.wait_replicas()
        for server in servers:
            self.assertEqual(server.client().execute_command("ACL", "LOG"), [], "somebody was refused something")

    def test_unknown_name(self):
        group = self.group(replicas=0, sentinels=1)
        url = group.url().replace(group.NAME, "another")
        result = self.submit(url)
        self.assertEqual(result.returncode, 69, result.stderr)
        self.assertIn(b"this Sentinel knows no master named another", result.stderr)
        for command in (("stats",), ("submit", "hello")):
            result = self.run_sluice(*command, "--redis", f"redis://127.0.0.1:{group.sentinels[0].port}", "--queue", self.queue)
            self.assertIn(b"Is this a Sentinel? Its address is redis+sentinel://HOST:PORT/NAME", result.stderr)
        daemon = self.make_daemon(group.servers[0], address=url).start()
        self.wait_until(lambda: "no master named another" in daemon.read_log(), "a complaint")
        self.assertTrue(daemon.running())

    def test_sentinel_that_is_behind(self):
        """It names a server that is now a replica: that server is refused, asked again, and accepted once it is
        master."""
        master, replica = TcpRedis(self.directory, "a"), TcpRedis(self.directory, "b")
        self.children += [master, replica]
        replica.follow(master)
        sentinel = self.fake_sentinel(lambda: array(b"127.0.0.1", b"%d" % replica.port))
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/any"
        daemon = self.make_daemon(replica, address=url).start()
        self.wait_until(lambda: f"it is a replica of 127.0.0.1:{master.port}" in daemon.read_log(), "a complaint")
        self.assertEqual(self.submit(url).returncode, 69)
        replica.follow(None)
        daemon.wait_ready(replica.client())
        self.sender = self.producer(replica)
        self.roundtrip(1)
        self.assert_clean(replica)

    def test_sentinels_that_talk_nonsense(self):
        """After any invalid answer the next sentinel is asked."""
        server = TcpRedis(self.directory, "a")
        self.children.append(server)
        self.sender = self.producer(server)
        odd = [self.fake_sentinel(lambda: array(b"127.0.0.1", b"99999")), self.fake_sentinel(lambda: b":1\r\n"),
               self.fake_sentinel(lambda: array(b"", b"1")), self.fake_sentinel(lambda: error("ERR no")),
               self.fake_sentinel(lambda: array(b"127.0.0.1", b"1", b"2")), self.fake_sentinel(lambda: b"HTTP/1.1 200\r\n")]
        good = self.fake_sentinel(lambda: array(b"127.0.0.1", b"%d" % server.port))
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in [*odd, good])
        self.start_daemon(server, address=f"redis+sentinel://{places}/any")
        self.roundtrip(1)
        self.assert_clean(server)
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in odd)
        result = self.submit(f"redis+sentinel://{places}/any")
        self.assertEqual(result.returncode, 69, result.stderr)
        self.assertIn(b"no master found", result.stderr)

    def test_sentinel_as_a_server(self):
        """redis:// at a sentinel's port is reported as a mistake."""
        group = self.group(replicas=0, sentinels=1)
        daemon = self.make_daemon(group.servers[0], address=f"redis://127.0.0.1:{group.sentinels[0].port}").start()
        self.assertNotEqual(daemon.wait_exit(), 0)
        self.assertIn("redis+sentinel://", daemon.read_log())

    def test_servers_in_turn(self):
        """Without sentinels the URL lists the servers, and the daemon uses the one that is master."""
        servers = [TcpRedis(self.directory, name) for name in "abc"]
        self.children += servers
        url = "redis://" + ",".join(f"127.0.0.1:{server.port}" for server in servers) + "/0"
        for replica in (servers[0], servers[1]):
            replica.follow(servers[2])
        servers[1].kill()
        daemon = self.start_daemon(servers[2], address=url)
        self.sender = self.producer(servers[2])
        self.roundtrip(1)
        result = self.submit(url, "--wait")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(daemon.stop(), 0)
        servers[2].kill()
        result = self.submit(url)
        self.assertEqual(result.returncode, 69)
        self.assertRegex(result.stderr.decode(), "no master found: .*is a replica of .*; .*refused; .*refused")
