"""Signals to a daemon: quiet and resume, a dump of held requests, a reload of the configuration."""

import json
import re
import signal

from case import RedisCase
from corpus import texts


class Signals(RedisCase):
    def quiet(self, daemon):
        """Sends TSTP and waits until no read of this worker waits for entries."""
        daemon.signal(signal.SIGTSTP)
        self.logged(daemon, " quiet signal=TSTP")
        self.wait_nobody_reads(self.client)

    def test_quiet_and_resume(self):
        """A quiet worker stays alive and takes nothing; the next one answers; it goes on where it stopped."""
        daemon = self.start_daemon(self.server)
        self.sender.submit_many(texts(20, seed=1))
        self.wait_finished(self.sender)
        self.quiet(daemon)
        waiting = [self.sender.submit(text, id=f"q-{number}") for number, text in enumerate(texts(20, seed=2))]
        name = daemon.worker_name(self.client)
        other = self.start_daemon(self.server, queue="other")  # its start gives the quiet worker time to take something wrongly
        self.assertEqual(other.stop(), 0)
        self.assertEqual(self.pending(self.client), 0)
        self.assertEqual(daemon.worker_name(self.client), name, "it keeps its lease")
        self.assertFalse(self.sender.finished(waiting[:1]))
        daemon.signal(signal.SIGCONT)
        self.wait_finished(self.sender)
        self.logged(daemon, " resumed signal=CONT")
        self.wait_empty(self.sender)
        self.assert_clean(self.server)
        self.assertEqual(daemon.stop(), 0)

    def test_quiet_then_stop(self):
        daemon = self.start_daemon(self.server)
        self.quiet(daemon)
        self.sender.submit_many(texts(5))
        self.assertEqual(daemon.stop(), 0)
        self.start_daemon(self.server)
        self.wait_finished(self.sender)
        self.assert_clean(self.server)

    def test_dump_of_what_is_held(self):
        """The dump has a line for each held request, without its text."""
        daemon = self.start_daemon(self.server, "--window", "fixed", "--window-ms", "60000")
        entries = [self.sender.submit(f"secret words {number}", id=f"order-{number}").entries[0] for number in range(3)]
        self.wait_until(lambda: self.pending(self.client) == 3, "the worker to hold them")
        dumps = 0

        def all_waiting():
            nonlocal dumps
            dumps += 1
            daemon.signal(signal.SIGUSR2)
            self.logged(daemon, r" in_flight ", dumps)
            last = daemon.read_log().rsplit(" in_flight ", 1)[1]
            return len(re.findall(r" held queue=test .* state=waiting ", last)) == 3 and last
        last = self.wait_until(all_waiting, "all three in the window")
        for number, entry in enumerate(entries):
            self.assertRegex(last, rf"held queue=test name={entry} id=order-{number} state=waiting age_ms=\d+ attempt=1 quarantined=0 quarantine_runs=0 tokens=\d+")
        self.assertNotIn("secret", daemon.read_log())
        self.assertEqual(daemon.stop(), 0)

    def reloadable(self, **settings):
        self.write("sluice.json", json.dumps(settings))

    def test_reload_takes_over_what_is_live(self):
        self.reloadable(window="fixed", window_ms=60000, max_text_bytes=1000)
        daemon = self.start_daemon(self.server, environment={"SLUICE_CONFIG": self.path("sluice.json")})
        self.sender.submit("held back by the window")
        self.wait_until(lambda: self.pending(self.client) == 1, "the worker to hold it")
        self.reloadable(window="idle", max_text_bytes=10, log_level="debug", stats_s=1)
        daemon.signal(signal.SIGHUP)
        self.logged(daemon, r" reloaded file=")
        self.wait_finished(self.sender)
        self.sender.submit_fields({"text": "longer than ten bytes", "id": "long"}, expected="too_large")
        self.wait_finished(self.sender)
        self.assert_clean(self.server)
        self.assertRegex(daemon.read_log(), r"warn reload_needs_restart queue=test setting=stats_s")
        self.assertEqual(daemon.stop(), 0)

    def test_reload_of_a_bad_file_changes_nothing(self):
        self.reloadable(max_text_bytes=10)
        daemon = self.start_daemon(self.server, environment={"SLUICE_CONFIG": self.path("sluice.json")})
        for number, (content, says) in enumerate((("{", "not valid JSON"), (json.dumps({"max_text_bytes": 0}), "max_text_bytes"),
                                                  (json.dumps({"default_ttl_s": 9, "max_ttl_s": 5}), "default_ttl_s"),
                                                  (json.dumps({"max_text_byte": 5}), "nearest"))):
            self.write("sluice.json", content)
            daemon.signal(signal.SIGHUP)
            self.logged(daemon, " reload_refused ", number + 1)
            self.assertIn(says, daemon.read_log().rsplit(" reload_refused ", 1)[1])
        self.sender.submit_fields({"text": "longer than ten bytes", "id": "long"}, expected="too_large")
        self.sender.submit("short")
        self.wait_finished(self.sender)
        self.assert_clean(self.server)
        self.assertEqual(daemon.stop(), 0)

    def test_reload_names_what_needs_a_restart(self):
        self.reloadable(lease_ms=500, prep_threads=1)
        daemon = self.start_daemon(self.server, environment={"SLUICE_CONFIG": self.path("sluice.json")})
        self.reloadable(lease_ms=900, prep_threads=2, window_ms=1)  # the flag --lease-ms hides the file's
        daemon.signal(signal.SIGHUP)
        self.logged(daemon, r" reloaded file=")
        self.assertEqual(re.findall(r"reload_needs_restart queue=test setting=(\S+)", daemon.read_log()), ["prep_threads"])
        self.assertEqual(daemon.stop(), 0)
