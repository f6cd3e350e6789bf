"""Redis' many kinds of refusal, and the daemon's behaviour for each (docs/redis.md, "What Redis says and what the
daemon does")."""
# ctest: threads
# ctest-cost: 15

import hashlib
import json
import re

from case import RedisCase
from corpus import texts
from producer import Journal
from resp_server import Voices
from scripts import source

# Messages of Redis 7.0, word for word where it matters.
WAITING = {
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
    "MOVED": "MOVED 1234 127.0.0.1:1",
    "crowded": "ERR max number of clients reached",
}
PASSING = {
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "ASK": "ASK 1234 127.0.0.1:1",
}
ENDING = {
    "NOAUTH": "NOAUTH Authentication required.",
    "WRONGPASS": "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM": "NOPERM this user has no permissions to run the 'evalsha' command",
    "DENIED": "DENIED Redis is running in protected mode because protected mode is enabled",
}


def digest(script):
    return hashlib.sha1(source(script).encode()).hexdigest().encode()


class VoicesOfRedis(RedisCase):
    def setUp(self):
        super().setUp()
        self.voices = self.make_voices()

    def make_voices(self):
        self.children.append(Voices(self.directory, self.server.socket))
        return self.children[-1]

    def start(self):
        daemon = self.start_daemon(self.server, address=self.voices.address)
        self.wait_finished(self.sender, self.sender.submit_many(texts(20, seed=1), encoding="f32"))
        return daemon

    def say(self, text, commands=(b"XREADGROUP", b"EVALSHA", b"XGROUP")):
        spoken = self.voices.spoken
        self.voices.voice = lambda words: text if words[0].upper() in commands else None
        return spoken

    def be_silent(self):
        self.voices.voice = lambda words: None

    def test_what_is_waited_out(self):
        """While Redis answers this way nothing is claimed, the daemon waits, and the log says why; afterwards all is
        answered. There is one queue for each message, side by side. MOVED points to an address without a server: the
        daemon returns to its own."""
        runs = []
        for name, text in {**WAITING, **PASSING}.items():
            sender, voices = self.producer(self.server, name.lower(), Journal()), self.make_voices()
            daemon = self.make_daemon(self.server, queue=sender.queue, address=voices.address).start()
            runs.append((text, sender, voices, daemon))
            sender.submit_many(texts(20, seed=1), encoding="f32")
        for text, sender, voices, _ in runs:
            self.wait_finished(sender)
            voices.voice = lambda words, text=text: text if words[0].upper() in (b"XREADGROUP", b"EVALSHA", b"XGROUP") else None
        for text, sender, voices, _ in runs:
            self.wait_until(lambda: voices.spoken > 0, f"{text} to be heard")
            sender.submit_many(texts(40, seed=2), encoding="f32")
        for text, sender, voices, daemon in runs:
            self.wait_until(lambda: voices.spoken > 5, f"{text} to be heard again")
            self.assertTrue(daemon.running(), daemon.read_log())
            self.logged(daemon, rf"(redis_lost|redis_unavailable|redis_refused) .*{re.escape(text[:15])}")
            self.assertLessEqual(self.pending(self.client, sender.queue), 1, "claimed by more than the read that was blocked already")
            voices.voice = lambda words: None
        for text, sender, _, daemon in runs:
            self.wait_finished(sender)
            self.wait_empty(sender)
            self.assert_clean(self.server, queue=sender.queue, journal=sender.journal)
            self.assertEqual(daemon.stop(), 0)

    def check_results_kept(self, text):
        """The refusal comes at the settle: finished results are kept and not computed again."""
        daemon = self.start()
        settle = digest("settle")
        self.voices.voice = lambda words: text if words[0] == b"EVALSHA" and words[1] == settle else None
        spoken = self.voices.spoken
        requests = self.sender.submit_many(texts(40, seed=3), encoding="f32")
        self.wait_until(lambda: self.voices.spoken > spoken + 2, f"{text} to be heard")
        self.assertEqual(self.client.xlen(self.sender.stream), 40)
        self.be_silent()
        self.wait_finished(self.sender, requests)
        self.wait_empty(self.sender)
        self.assert_clean(self.server)
        self.assertEqual(daemon.stop(), 0)
        counts = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", daemon.read_log().splitlines()[-1])}
        self.assertEqual(counts["done"], 60)
        # An answer from the own pending list, in flight during a settle, may return entries that the settle has just ended.
        self.assertEqual(counts["rows"] - counts["late"], 60)

    def check_ends(self, text, **said):
        daemon = self.start()
        request = self.sender.submit("held by nobody afterwards")
        self.wait_finished(self.sender, [request])
        self.say(text, **said)
        self.assertEqual(daemon.wait_exit(), 77, daemon.read_log())
        self.assertIn(text[:60], daemon.read_log())
        self.be_silent()
        self.start()
        self.assert_clean(self.server)

    def test_results_kept(self):
        for text in (WAITING["READONLY"], WAITING["MISCONF"], PASSING["TRYAGAIN"]):
            with self.subTest(text=text):
                self.check_results_kept(text)

    def test_what_ends_the_daemon(self):
        for name in ("NOAUTH", "WRONGPASS", "NOPERM"):
            with self.subTest(name=name):
                self.check_ends(ENDING[name])

    def test_what_ends_the_daemon_between_three_looks(self):
        """The checks for future ids are sent together. The first refusal closes the connection, and so ends the other
        two."""
        self.check_ends(ENDING["NOPERM"], commands=(b"XRANGE",))

    def test_protected_mode(self):
        """Redis sends it to a stranger in place of the first answer."""
        self.voices.voice = lambda words: ENDING["DENIED"] if words[0] == b"CLIENT" else None
        daemon = self.make_daemon(self.server, address=self.voices.address).start()
        self.assertEqual(daemon.wait_exit(), 77, daemon.read_log())
        self.assertIn("protected mode", daemon.read_log())

    def test_a_repeated_refusal_is_logged_once_a_second(self):
        daemon = self.start()
        spoken = self.say(PASSING["TRYAGAIN"], commands=(b"XREADGROUP",))
        self.wait_until(lambda: self.voices.spoken > spoken + 30, "the voice to be heard often")
        lines = daemon.read_log().count("XREADGROUP: Redis says: TRYAGAIN")
        self.assertGreater(lines, 0)
        self.assertLess(lines, (self.voices.spoken - spoken) / 2)

    # Output of the commands that people use.

    def test_submit(self):
        for name, text in {**WAITING, **PASSING, **ENDING}.items():
            self.voices.voice = lambda words, text=text: text if words[0] == b"XADD" else None
            result = self.run_sluice("submit", "--redis", self.voices.address, "--queue", self.queue, "hello")
            self.assertEqual(result.returncode, 77 if name in ENDING else 69, (name, result.stderr))
            self.assertIn(text[:60].encode(), result.stderr, name)

    # Rights are taken from a real user one by one while its worker runs: the log names the missing one. (test_acl.py tests
    # rights that are missing at the join.)

    def open_port(self):
        self.server.cleanup()
        self.port = self.server.start_on_tcp()
        self.client = self.server.client()
        self.sender = self.producer(self.server)
        self.client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">word", "+@all", "~*")
        return self.port

    def check_missing(self, words, *rights, **fields):
        port = self.open_port()
        daemon = self.start_daemon(self.server, address=f"redis://worker:word@127.0.0.1:{port}")
        self.client.execute_command("ACL", "SETUSER", "worker", *rights)
        self.sender.submit_fields(fields or {"text": "hello"}, "hello")
        self.assertEqual(daemon.wait_exit(), 77, daemon.read_log())
        self.assertRegex(daemon.read_log(), words)

    def test_missing_command(self):
        self.check_missing(r"XREADGROUP: Redis says: NOPERM .*'xreadgroup'", "-xreadgroup")

    def test_missing_command_inside_a_script(self):
        self.check_missing(r"settle: Redis says: NOPERM the user may not XACK sluice:\{test\}:requests\W", "-xack")

    def test_missing_command_inside_a_script_inside_a_transaction(self):
        self.check_missing(r"settle: Redis says: NOPERM the user may not XACK sluice:\{test\}:requests\W", "-xack",
                           inputs=json.dumps(["hello"] * 32))

    def test_missing_key(self):
        self.check_missing(r"NOPERM .*sluice:\{test\}:requests", "resetkeys", "~sluice:{test}:[^r]*", "~sluice:{test}:reply:*")

    def test_missing_key_of_a_script(self):
        self.check_missing(r"settle: .*NOPERM .*: sluice:\{test\}:requests .*sluice:\{test\}:reply:", "resetkeys",
                           "~sluice:{test}:[^r]*", "~sluice:{test}:requests*")
