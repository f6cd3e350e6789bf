"""Notifications of `sluice serve` and `sluice gateway` to systemd (units of Type=notify, the first with WatchdogSec); here the test plays systemd and
reads the datagrams."""

import os
import signal
import socket
import struct

from gateway_case import GatewayCase

HALF_S = 0.5
SO_TIMESTAMP = 29  # of Linux; Python has no name for it


class Systemd(GatewayCase):
    def listen(self, name):
        """Returns a socket that NOTIFY_SOCKET may name; a leading `@` makes it abstract."""
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notified.close)
        notified.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
        notified.bind(name.replace("@", "\0", 1))
        notified.settimeout(60)
        return notified

    def start(self, name, *flags, address="socket", **environment):
        """Starts a daemon as systemd does; returns it and the socket that receives its notifications."""
        notified = self.listen(name)
        environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": str(int(2e6 * HALF_S)), **environment}
        return self.make_daemon(self.server, *flags, address=address, environment=environment).start(), notified

    def hear(self, notified):
        return notified.recv(1000).decode()

    def hear_at(self, notified):
        """A notification, and when the daemon sent it, in seconds: the test may read it later."""
        word, (stamp,), _, _ = notified.recvmsg(1000, 100)
        seconds, micros = struct.unpack("qq", stamp[2])
        return word.decode(), seconds + micros / 1e6

    def hear_all(self, notified):
        """Returns all notifications received so far."""
        notified.setblocking(False)
        heard = []
        try:
            while True:
                heard.append(self.hear(notified))
        except BlockingIOError:
            return heard
        finally:
            notified.settimeout(60)

    def hear_ready(self, notified):
        while (word := self.hear(notified)) != "READY=1":
            self.assertEqual(word, "WATCHDOG=1")

    def test_a_gateway(self):
        """It reports ready once it listens, whether or not there is a Redis, and when it begins to stop."""
        self.server.kill()
        notified = self.listen(self.path("notify"))
        gateway = self.make_gateway(environment={"NOTIFY_SOCKET": self.path("notify")}).start()
        self.assertEqual(self.hear(notified), "READY=1")
        self.assertEqual(self.ask("GET", "/health", gateway=gateway).status, 503)
        gateway.process.terminate()
        self.assertEqual(self.hear(notified), "STOPPING=1")
        self.assertEqual(gateway.wait_exit(), 0)
        self.assertEqual(self.hear_all(notified), [])

    def test_a_life(self):
        """The daemon reports ready once the queue is joined, a watchdog sign at half of systemd's timeout, and when it
        begins to stop."""
        daemon, notified = self.start(self.path("notify"))
        self.hear_ready(notified)
        self.assertEqual(len(self.client.keys("sluice:{test}:alive:*")), 1)
        self.hear_all(notified)
        words, times = zip(*(self.hear_at(notified) for _ in range(6)))
        self.assertEqual(set(words), {"WATCHDOG=1"})
        took = times[-1] - times[0]
        self.assertTrue(4 * HALF_S < took < 11 * HALF_S, took)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(set(self.hear_all(notified)) - {"WATCHDOG=1"}, {"STOPPING=1"})

    def test_a_stopped_loop_says_nothing(self):
        """The watchdog signs come from the event loop. Those of another daemon serve as a clock."""
        stopped, notified = self.start(f"@sluice-{os.getpid()}-stopped")
        self.hear_ready(notified)
        _, clock = self.start(f"@sluice-{os.getpid()}-clock")
        self.hear_ready(clock)
        stopped.signal(signal.SIGSTOP)
        self.wait_until(lambda: open(f"/proc/{stopped.pid}/stat", encoding="ascii").read().split()[2] == "T", "it to stand still")
        self.hear_all(notified)
        self.hear_all(clock)
        for _ in range(4):
            self.hear(clock)
        self.assertEqual(self.hear_all(notified), [])
        stopped.signal(signal.SIGCONT)
        self.assertEqual(self.hear(notified), "WATCHDOG=1")

    def test_a_start_without_redis_ends(self):
        """A daemon that waits for Redis reports ready; otherwise systemd would end it, or wait for ever."""
        daemon, notified = self.start(self.path("notify"), address=self.path("nobody"))
        self.hear_ready(notified)
        self.logged(daemon, "redis_unavailable")
        self.assertTrue(daemon.running())

    def test_a_daemon_that_redis_refuses_is_never_ready(self):
        self.client.config_set("requirepass", "secret")
        daemon, notified = self.start(self.path("notify"))
        self.assertEqual(daemon.wait_exit(), 77)
        self.assertEqual(set(self.hear_all(notified)) - {"WATCHDOG=1"}, set())

    def test_a_daemon_of_two_queues_is_ready_with_the_second(self):
        """One of them belongs to another model, so the daemon ends; it did not report ready before it knew."""
        self.client.hset("sluice:{b}:meta", mapping={"protocol": "1", "model_id": "another"})
        notified = self.listen(self.path("notify"))
        model = self.make_model()
        settings = {"queues": [{"queue": "a", "model": model}, {"queue": "b", "model": model}]}
        daemon = self.make_configured(self.server, settings, environment={"NOTIFY_SOCKET": self.path("notify")})
        self.assertEqual(daemon.start().wait_exit(), 65)
        self.assertNotIn("READY=1", self.hear_all(notified))

    def test_a_watchdog_for_another_process(self):
        """WATCHDOG_PID names the process that is meant; an unusable socket is left alone."""
        daemon, notified = self.start(self.path("notify"), WATCHDOG_PID="1")
        self.hear_ready(notified)
        daemon.wait_ready(self.client)
        _, clock = self.start(self.path("clock"))
        for _ in range(4):
            self.hear(clock)
        self.assertEqual(self.hear_all(notified), [])
        for name in ("", "relative", "/" + 200 * "x", self.path("nobody-listens")):
            odd = self.make_daemon(self.server, environment={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000"}).start()
            self.assertEqual(odd.wait_ready(self.client).stop(), 0, name)
