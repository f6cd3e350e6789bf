"""The commands of an operator: dead letters, workers, caps, pause, cancel, stats. Their rights are in test_acl.py."""
# ctest-cost: 10

import json
import math
import os
import re
import shlex
import signal
import subprocess
from unittest.mock import ANY

from acl import make_user
from case import RedisCase
from corpus import texts
from daemon import BINARY, SOURCE
from vectors import decode_f32

HOST = re.sub("[^A-Za-z0-9.]", "-", os.uname().nodename)  # as worker names spell it
USAGE, DATAERR, NOINPUT, UNAVAILABLE, IOERR = 64, 65, 66, 69, 74


class Operator(RedisCase):
    def sluice(self, *arguments, code=0):
        """Returns also the standard error of a command that must fail."""
        return super().sluice(*arguments, code=code) + (self.said if code else "")

    def bury(self, name, code="internal", text="some words", age_ms=0, **fields):
        """Adds a dead letter as lua/settle writes it; returns its id."""
        now = self.now_ms() - age_ms
        letter = {"_entry": name, "_code": code, "_message": "the engine said no", "_info": '{"attempts":4}', "text": text, **fields}
        return self.client.xadd(self.sender.key("dead"), letter, id=f"{now}-*").decode()

    def letters(self):
        return [id.decode() for id, _ in self.client.xrange(self.sender.key("dead"))]

    # dead

    def test_dead_list_and_show(self):
        self.client.hset(self.sender.key("meta"), "model_id", "a model")
        none = self.run_sluice("dead", "list", "--redis", self.server.socket, "--queue", self.queue)
        self.assertEqual((none.returncode, none.stdout, none.stderr), (0, b"", b"no dead letter in queue test\n"))
        first = self.bury("5-0", age_ms=7_200_000)
        second = self.bury("high:6-1", code="poison", id="order-7")
        none = self.run_sluice("dead", "list", "--code", "timeout", "--redis", self.server.socket, "--queue", self.queue)
        self.assertEqual((none.returncode, none.stdout, none.stderr), (0, b"", b"no dead letter in queue test matches\n"))
        lines = self.sluice("dead", "list").splitlines()
        self.assertEqual([line.split()[0] for line in lines], [first, second])
        self.assertRegex(lines[0], rf"^{first} +internal +5-0 +4 attempts, 2h ago: the engine said no$")
        self.assertRegex(lines[1], rf"^{second} +poison +high:6-1 ")
        self.assertEqual([line.split()[0] for line in self.sluice("dead").splitlines()], [first, second])
        shown = self.sluice("dead", "show", second).splitlines()
        self.assertEqual(shown[0], f"letter: {second}")
        self.assertIn("id: order-7", shown)
        self.assertIn("_code: poison", shown)
        self.assertIn("text: some words", shown)
        self.assertIn("there is no dead letter 1-1; if it is a request's id or name: sluice dead list --id 1-1\n", self.sluice("dead", "show", "1-1", code=NOINPUT))
        self.assertIn("there is no dead letter order-7: a letter is called ", self.sluice("dead", "show", "order-7", code=NOINPUT))
        self.assertTrue(self.sluice("dead", "list", "--id", "order-7").startswith(second))

    def test_dead_list_has_the_users_id_and_json(self):
        first = self.bury("5-0", age_ms=7_200_000)
        second = self.bury("high:6-1", code="poison", id="order 7", _info='{"attempts":4,"tenant":"acme"}', _message='say "no"')
        self.assertRegex(self.sluice("dead", "list").splitlines()[1], rf"^{second} +poison +high:6-1 +order 7 +4 attempts")
        lines = [json.loads(line) for line in self.sluice("dead", "list", "--json").splitlines()]
        self.assertEqual(lines, [
            {"queue": "test", "letter": first, "code": "internal", "entry": "5-0", "id": None, "tenant": None, "attempts": 4, "age_ms": ANY,
             "message": "the engine said no"},
            {"queue": "test", "letter": second, "code": "poison", "entry": "high:6-1", "id": "order 7", "tenant": "acme", "attempts": 4,
             "age_ms": ANY, "message": 'say "no"'}])
        self.assertIn("--json is for list", self.sluice("dead", "show", "--all", "--json", code=USAGE))

    def test_dead_filters(self):
        old = self.bury("5-0", age_ms=10_000_000)
        poison = self.bury("6-0", code="poison", age_ms=5_000_000, id="order-7")
        new = self.bury("7-0")

        def listed(*filters):
            return [line.split()[0] for line in self.sluice("dead", "list", *filters).splitlines()]
        self.assertEqual(listed("--code", "poison"), [poison])
        self.assertEqual(listed("--code", "timeout"), [])
        self.assertEqual(listed("--older-than", "1h"), [old, poison])
        self.assertEqual(listed("--newer-than", "2h"), [poison, new])
        self.assertEqual(listed("--older-than", "1h", "--newer-than", "2h"), [poison])
        self.assertEqual(listed("--id", "order-7"), [poison])
        self.assertEqual(listed("--id", "5-0"), [old])
        self.sluice("dead", "list", "--older-than", "soon", code=USAGE)

    def test_dead_of_many_pages(self):
        for number in range(257):
            self.bury(f"{number + 1}-0", code="poison" if number % 2 else "internal", age_ms=300 - number)
        self.assertEqual(len(self.sluice("dead", "list").splitlines()), 257)
        self.assertEqual(self.sluice("dead", "delete", "--all", "--code", "poison"), "128 deleted\n")
        self.assertEqual(self.sluice("dead", "purge", "--all"), "129 deleted\n")
        self.assertEqual(self.letters(), [])

    def test_dead_mass_actions_need_all(self):
        letter = self.bury("5-0")
        for verb in ("requeue", "delete", "purge"):
            self.assertIn("--all", self.sluice("dead", verb, code=USAGE))
            self.assertIn("--all", self.sluice("dead", verb, "--code", "internal", code=USAGE))
        self.assertIn("not both", self.sluice("dead", "delete", letter, "--all", code=USAGE))
        self.sluice("dead", "bury", code=USAGE)
        self.assertEqual(self.letters(), [letter])

    def test_dead_dry_run_changes_nothing(self):
        first, second = self.bury("5-0"), self.bury("6-0", code="poison")
        before = self.client.xrange(self.sender.key("dead"))
        self.assertRegex(self.sluice("dead", "requeue", "--dry-run", "--code", "poison"), rf"^{second} .*\n1 would be requeued\n$")
        self.assertRegex(self.sluice("dead", "purge", "--all", "--dry-run"), rf"(?s)^{first} .*{second} .*\n2 would be deleted\n$")
        self.assertEqual(self.client.xrange(self.sender.key("dead")), before)
        self.assertEqual(self.client.xlen(self.sender.stream), 0)

    def test_dead_delete(self):
        first, second, third = self.bury("5-0"), self.bury("6-0"), self.bury("7-0")
        self.assertEqual(self.sluice("dead", "delete", first, third), "2 deleted\n")
        self.assertEqual(self.letters(), [second])
        self.assertIn("no dead letter", self.sluice("dead", "delete", "1-1", code=NOINPUT))

    def test_dead_made_by_hand(self):
        """Uses the command in docs/operations.md that makes a letter for trying the others."""
        with open(os.path.join(SOURCE, "docs", "operations.md"), encoding="utf-8") as file:
            command = re.search(r"^redis-cli (XADD 'sluice:\{default\}:dead'.*)$", file.read().replace("\\\n", ""), re.MULTILINE)[1]
        letter = self.client.execute_command(*shlex.split(command.replace("{default}", f"{{{self.queue}}}"))).decode()
        self.assertRegex(self.sluice("dead", "list"), rf"^{letter} +internal .*made by hand\n$")
        self.assertIn("text: hello world", self.sluice("dead", "show", letter))
        self.sluice("dead", "requeue", letter)
        self.assertEqual((self.letters(), self.client.xlen(self.sender.stream)), ([], 1))

    def test_dead_requeue_is_answered(self):
        """A resubmitted letter is a request like any other, under its old id."""
        letters = [self.bury(f"{number + 1}-0", text=text, id=f"again-{number}") for number, text in enumerate(texts(5, seed=2))]
        other = self.bury("9-0", code="poison", id="not-this-one")
        self.start_daemon(self.server)
        out = self.sluice("dead", "requeue", letters[0])
        self.assertRegex(out, rf"^{letters[0]} requeued as \d+-\d+\n1 requeued\n$")
        self.assertTrue(self.sluice("dead", "requeue", "--all", "--code", "internal").endswith("\n4 requeued\n"))
        self.assertEqual(self.letters(), [other])
        reference = self.reference()
        reference.learn(texts(5, seed=2))
        for number, text in enumerate(texts(5, seed=2)):
            key = self.sender.key(f"reply:again-{number}")
            self.wait_until(lambda: self.client.hget(key, "status") == b"done", f"the reply of again-{number}")
            self.assertEqual(decode_f32("json", self.client.hget(key, "embedding")), reference.known[text])
        self.assertEqual(self.client.exists(self.sender.key("reply:not-this-one")), 0)

    def test_dead_requeue_without_a_body(self):
        letter = self.client.xadd(self.sender.key("dead"), {"_entry": "5-0", "_code": "poison"}).decode()
        self.assertIn("holds no fields", self.sluice("dead", "requeue", "--all", code=DATAERR))
        self.assertEqual(self.letters(), [letter])

    def test_dead_requeue_of_a_cut_letter(self):
        letter = self.bury("5-0", text="only the beginning", _cut="99999")
        self.assertIn("only the beginning of its request", self.sluice("dead", "requeue", letter, code=DATAERR))
        self.assertEqual(self.letters(), [letter])

    def test_dead_bytes_of_others_stay_on_their_line(self):
        self.bury("5-0", text=b"a\x1b[2J\r\nforged: line\xff\xc2\x9bx \xc3\xa4", _message=b"no\n1-1 forged")
        lines = self.sluice("dead", "list").splitlines()
        self.assertEqual(len(lines), 1)
        self.assertIn("no\\x0a1-1 forged", lines[0])
        shown = self.sluice("dead", "show", "--all")
        self.assertIn("text: a\\x1b[2J\\x0d\\x0aforged: line\\xff\\xc2\\x9bx ä\n", shown)

    def test_bytes_of_others_control_no_terminal(self):
        """This holds in every column, also for C1, U+0080 to U+009F, as single bytes and as UTF-8: some terminals read
        U+009B as ESC [."""
        controls = "".join(map(chr, (*range(1, 32), *range(0x7f, 0xa0))))
        evil = controls + "ä\u00a0" + "\u2028"
        info = {"entry": "1-0", "meta": evil, evil: evil}
        reply = {"status": "error", "code": "bad_request", "message": evil, evil: "x"}
        self.client.hset(self.sender.key("reply:mine"), mapping={**reply, "info": json.dumps(info, ensure_ascii=False)})
        self.bury(evil, code=evil, text=evil.encode() + bytes(range(0x80, 0x100)), _info=json.dumps({"attempts": evil, "tenant": evil}), _message=evil, **{evil: "x"})
        shown = {"get": self.sluice("get", "mine"), "list": self.sluice("dead", "list"), "show": self.sluice("dead", "show", "--all")}
        for what, text in shown.items():
            found = [character for character in text if character in controls and character != "\n"]
            self.assertEqual(found, [], what)
        self.assertEqual(json.loads(shown["get"]), {"id": "mine", **reply, "info": info})
        self.assertEqual(shown["list"].count("\n"), 1)
        self.assertIn("ä\u00a0", shown["list"])
        self.client.hset(self.sender.key("reply:mine"), b"name \x9b", "x")
        self.assertEqual(json.loads(self.sluice("get", "mine"))["name \ufffd"], "x")

    # workers

    def heartbeat(self, name, state="running", ago_ms=100, alive=True, done=40):
        self.client.hset(self.sender.key("workers"), name, f"{self.now_ms() - ago_ms} state {state} held 3 waiting 1 computing 2 "
                         f"done {done} errors 5 dead 6 devices 2 devices_lost 1 batches 4 rows 40 tokens 800 "
                         "computed_tokens 1000 rows_per_s 12.500")
        if alive:
            self.client.set(self.sender.key("alive:" + name), "token", px=60000)

    def test_workers_list_json(self):
        self.assertEqual(self.sluice("workers", "list", "--json"), '{"queue":"test","workers":[]}\n')
        self.heartbeat("host-1-aa")
        self.client.hset(self.sender.key("workers"), "command:host-1-aa", "drain")
        self.assertEqual(json.loads(self.sluice("workers", "list", "--json")), {"queue": "test", "workers": [
            {"worker": "host-1-aa", "state": "running", "held": 3, "waiting": 1, "computing": 2, "done": 40, "errors": 5, "dead": 6,
             "devices": 2, "devices_lost": 1, "batches": 4, "rows": 40, "tokens": 800, "computed_tokens": 1000, "rows_per_s": 12.5, "precision": None, "int8_products": None, "reason": None, "version": None, "spoke_ms_ago": ANY, "alive": True,
             "ordered": "drain"}]})
        self.assertIn("--json is for list", self.sluice("workers", "check", "--json", code=USAGE))

    def test_workers_list(self):
        self.assertIn("no worker", self.sluice("workers"))
        self.heartbeat("host-1-aa")
        self.heartbeat("host-2-bb", state="quiet", ago_ms=90_000, alive=False)
        self.client.hset(self.sender.key("workers"), "command:host-1-aa", "drain")
        lines = sorted(self.sluice("workers", "list").splitlines())
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"^host-1-aa state=running held=3 waiting=1 computing=2 done=40 errors=5 dead=6 devices=2 "
                                   r"devices_lost=1 batches=4 rows=40 tokens=800 computed_tokens=1000 rows_per_s=12.500 spoke=\d+ms alive=yes ordered=drain$")
        self.assertRegex(lines[1], r"^host-2-bb state=quiet .* spoke=90s alive=no$")

    def test_workers_orders(self):
        self.heartbeat("host-1-aa")
        self.heartbeat("host-2-bb")
        self.heartbeat("host-3-cc", alive=False)
        key = self.sender.key("workers")
        self.assertEqual(self.sluice("workers", "quiet", "host-1-aa"), "host-1-aa: quiet\n")
        self.assertEqual(self.client.hget(key, "command:host-1-aa"), b"quiet")
        self.assertEqual(len(self.sluice("workers", "drain", "--all").splitlines()), 2)
        self.assertEqual([self.client.hget(key, f"command:host-{n}") for n in ("1-aa", "2-bb", "3-cc")], [b"drain", b"drain", None])
        self.sluice("workers", "stop", "host-3-cc", code=NOINPUT)
        self.sluice("workers", "stop", "nobody", code=NOINPUT)
        self.sluice("workers", "stop", code=USAGE)
        self.sluice("workers", "stop", "host-1-aa", "--all", code=USAGE)
        self.sluice("workers", "list", "host-1-aa", code=USAGE)
        self.sluice("workers", "dance", code=USAGE)

    def test_workers_check(self):
        """The check judges the workers of this host, each by its own heartbeat; workers of other hosts do not count."""
        host = os.uname().nodename
        self.heartbeat("elsewhere-1-aa")
        self.assertIn("no worker of", self.sluice("workers", "check", code=UNAVAILABLE))
        self.heartbeat(f"{host}-1-bb")
        self.assertEqual(self.sluice("workers", "check"), "1 alive\n")
        self.heartbeat(f"{host}-2-cc", ago_ms=60_000)
        self.assertIn("has said nothing for", self.sluice("workers", "check", code=UNAVAILABLE))
        self.heartbeat(f"{host}-2-cc", ago_ms=60_000)
        self.client.delete(self.sender.key(f"alive:{host}-2-cc"))  # gone, and already replaced
        self.assertEqual(self.sluice("workers", "check"), "1 alive\n")

    # a queue whose name may be mistyped

    def test_a_queue_that_nobody_has_used(self):
        """Each command on it warns and still does its work, because the queue may be new. With --json the warning is
        not on standard output."""
        for name in ("mail", "default"):
            self.client.xadd(f"sluice:{{{name}}}:requests", {"text": "x"})
            self.client.hset(f"sluice:{{{name}}}:meta", "model_id", "a model")
        words = "no worker has ever joined queue mial; is that its name? Others in this Redis: default, mail\n"
        for command, code in (("stats", 0), ("stats --json", 0), ("workers list", 0), ("pause", 0), ("resume", 0), ("caps", 0), ("pin", 0),
                              ("cancel 5-0", 0), ("dead list", 0), ("get 5-0", UNAVAILABLE), ("get 5-0 --story", UNAVAILABLE), ("submit hello", 0)):
            result = self.run_sluice(*command.split(), "--redis", self.server.socket, "--queue", "mial")
            self.assertEqual(result.returncode, code, command)
            self.assertTrue(result.stderr.decode().startswith(f"sluice {command.split()[0]}: {words}"), (command, result.stderr))
            if "--json" in command:
                self.assertEqual(json.loads(result.stdout)["queue"], "mial")
            joined = self.run_sluice(*command.split(), "--redis", self.server.socket, "--queue", "mail")
            self.assertNotIn("no worker", joined.stderr.decode(), command)
        self.assertEqual(self.look(self.top("--queue", "mial"))[1], words.strip())
        for number in range(9):
            self.client.xadd(f"sluice:{{q{number}}}:requests:low", {"text": "x"})
        listed = self.run_sluice("stats", "--redis", self.server.socket, "--queue", "mial").stderr.decode()
        self.assertRegex(listed, r"Others in this Redis: (\w+, ){8}\.\.\.\n$")

    def test_queues_that_this_login_may_not_list(self):
        self.client.xadd("sluice:{default}:requests", {"text": "x"})
        make_user(self.client, "operator", self.queue)
        result = self.run_sluice("stats", "--redis", f"redis+unix://sluice-operator@{self.server.socket}", "--queue", self.queue,
                                 environment={"SLUICE_REDIS_PASSWORD": "pw"})
        self.assertEqual((result.returncode, result.stderr), (0, b"sluice stats: no worker has ever joined queue test\n"))

    # pause, caps, cancel, stats

    def test_pause_and_resume(self):
        self.assertEqual(self.sluice("resume"), "queue test was not paused\n")
        began = self.now_ms()
        known = rf"paused since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+m?s ago\), by default@{HOST}\n$"
        self.assertRegex(self.sluice("pause"), "^queue test is " + known)
        self.assertRegex(self.sluice("pause"), "^queue test was already " + known)
        self.assertEqual(self.client.pttl(self.sender.key("paused")), -1)
        pause = self.pause()
        self.assertTrue(began <= pause.pop("paused_since_ms") <= self.now_ms())
        self.assertEqual(pause, {"paused": True, "paused_until_ms": None, "paused_by": "default@" + HOST, "paused_why": None})
        self.assertEqual(self.sluice("resume"), "queue test goes on\n")
        self.assertEqual(self.client.exists(self.sender.key("paused")), 0)
        self.assertEqual(set(self.pause().values()), {False, None})

    def pause(self):
        stats = json.loads(self.sluice("stats", "--json"))
        return {name: value for name, value in stats.items() if name.startswith("paused")}

    def test_pause_says_who_and_why(self):
        """Every view shows it; the last order applies, and values that it does not give stay, except the end."""
        self.heartbeat("host-1-aa")
        self.sluice("pause", "--for", "30m", "--why", "re\u00efndexing\ttwice")
        first, now = self.pause(), self.now_ms()
        self.assertEqual((first["paused_by"], first["paused_why"]), ("default@" + HOST, "re\u00efndexing\ttwice"))
        self.assertTrue(now - 60_000 < first["paused_since_ms"] <= now)
        self.assertTrue(now + 1_740_000 < first["paused_until_ms"] <= now + 1_800_000)
        known = rf"paused since \S+ \S+ UTC \(\d+m?s ago\), until \S+ \S+ UTC \(in (29|30)m\), by default@{HOST}: re\u00efndexing\\x09twice"
        self.assertRegex(self.sluice("stats"), "(?m)^" + known.replace("paused", "paused  ", 1) + "$")
        self.assertRegex(self.sluice("workers", "list"), f"(?m)^queue test is {known}$")
        self.assertRegex(self.look(self.top("--queue", self.queue))[0], rf"^queue test \({known}\): later 0")
        self.sluice("pause", "--for", "2h")
        second = self.pause()
        self.assertEqual({**second, "paused_until_ms": 0}, {**first, "paused_until_ms": 0})
        self.assertGreater(second["paused_until_ms"], first["paused_until_ms"] + 5_000_000)
        self.sluice("pause", "--why", "another reason")
        self.assertEqual(self.pause(), {**first, "paused_until_ms": None, "paused_why": "another reason"})
        self.assertIn(" was already paused since ", self.sluice("pause"))
        for wrong in (["--for", "0s"], ["--for", "soon"], ["--for", "4000d"], ["--why", ""], ["--why", "x" * 201], ["--why", b"\xff"]):
            result = subprocess.run([BINARY, "pause", *wrong, "--redis", self.server.socket, "--queue", self.queue], capture_output=True, check=False)
            self.assertEqual(result.returncode, USAGE, (wrong, result.stderr))
        self.assertEqual(self.pause()["paused_why"], "another reason")

    def test_pause_of_somebody_else(self):
        """Pauses by an older version, by hand, and by a key of another type."""
        key = self.sender.key("paused")
        for value, since, why in (("1795252518106", 1795252518106, None), ("by Ann, until noon", None, "by Ann, until noon"), (None, None, None)):
            self.client.delete(key)
            self.client.set(key, value) if value else self.client.hset(key, "by", "somebody")
            with self.subTest(value=value):
                self.assertEqual(self.pause(), {"paused": True, "paused_since_ms": since, "paused_until_ms": None, "paused_by": None, "paused_why": why})
                self.assertIn(" was already paused", self.sluice("pause"))
                self.sluice("pause", "--for", "1h")
                pause = self.pause()
                self.assertEqual((pause["paused_since_ms"], pause["paused_by"], pause["paused_why"]), (since, "default@" + HOST, why))
                self.assertGreater(self.client.pttl(key), 3_500_000)

    def test_caps(self):
        self.assertEqual(self.sluice("caps").split(), ["high", "none", "normal", "none", "low", "none", "later", "none"])
        self.assertEqual(self.sluice("caps", "--normal", "5000", "--high", "10").split(), ["high", "10", "normal", "5000", "low", "none", "later", "none"])
        self.assertEqual(self.sluice("caps", "--high", "0", "--later", "7").split(), ["high", "none", "normal", "5000", "low", "none", "later", "7"])
        self.assertEqual(self.sluice("caps", "--normal", "-1").split(), ["high", "none", "normal", "5000", "low", "none", "later", "7"])
        self.assertIn("-1, like an option that is not given, leaves it as it is", self.run_sluice("caps", "--help").stdout.decode())
        self.assertEqual(self.client.hget(self.sender.key("meta"), "cap_normal"), b"5000")
        self.sluice("caps", "--high", "many", code=USAGE)

    def test_cancel(self):
        self.assertEqual(self.sluice("cancel", "5-0", "low:6-1"), "5-0: asked to cancel\nlow:6-1: asked to cancel\n")
        fields = [fields for _, fields in self.client.xrange(self.sender.key("control"))]
        self.assertEqual(fields, [{b"cancel": b"5-0"}, {b"cancel": b"low:6-1"}])
        self.sluice("cancel", code=USAGE)
        self.sluice("cancel", "5-0", "order\t7", code=USAGE)
        self.assertEqual(self.client.xlen(self.sender.key("control")), 2)

    def test_stats(self):
        self.assertRegex(self.sluice("stats"), r"workers +0 alive")
        self.client.xadd(self.sender.key("requests:low"), {"text": "x"})
        self.client.xgroup_create(self.sender.stream, "sluice", id="0", mkstream=True)
        for _ in range(5):
            self.client.xadd(self.sender.stream, {"text": "x"})
        self.client.xreadgroup("sluice", "me", {self.sender.stream: ">"}, count=2)
        self.bury("5-0")
        self.client.zadd(self.sender.key("later"), {"6-0": 1})
        self.heartbeat("host-1-aa", state="quiet")
        self.heartbeat("host-2-bb", alive=False)
        self.client.set(self.sender.key("paused"), 1)
        self.client.hset(self.sender.key("meta"), mapping={"published_at": self.now_ms(), "wait_ms_normal": 1234, "wait_ms_low": -1,
                                                               "cap_normal": 2, "cap_low": 5, "cap_high": 0})
        stats = json.loads(self.sluice("stats", "--json"))
        self.assertEqual(stats, {
            "queue": "test", "paused": True, "paused_since_ms": None, "paused_until_ms": None, "paused_by": None, "paused_why": "1", "depth": 7, "later": 1, "due": 1, "dead": 1, "dead_bytes": ANY, "days": [], "workers": 1, "quiet": 1, "tight": 0,
            "reason": None, "devices": 2, "devices_lost": 1,
            "precisions": {"unknown": 1}, "pinned_precision": None, "at": ANY,
            "died": 0, "ignored": 0, "since": None, "ended": {which: {"done": 0} for which in ("high", "normal", "low")},
            "cap_later": None,
            "classes": {"high": {"unread": 0, "pending": 0, "wait_ms": None, "cap": None, "above_cap": 0, "oldest_ms": None},
                        "normal": {"unread": 3, "pending": 2, "wait_ms": 1234, "cap": 2, "above_cap": 1, "oldest_ms": ANY},
                        "low": {"unread": 1, "pending": 0, "wait_ms": None, "cap": 5, "above_cap": 0, "oldest_ms": ANY}}})
        self.assertTrue(100 < stats["dead_bytes"] < 10000)
        for level in ("normal", "low"):  # one is pending, the other unread
            self.assertTrue(0 <= stats["classes"][level]["oldest_ms"] < 60_000, level)
        text = self.sluice("stats")
        self.assertRegex(text, r"(?m)^queue +test \(paused\)$")
        self.assertRegex(text, r"(?m)^normal +3 +2 +1234 ms +2 +1$")
        self.assertRegex(text, r"(?m)^low +1 +0 +unknown +5 +0$")
        self.assertRegex(text, r"(?m)^devices +2, and 1 lost$")
        self.client.hset(self.sender.key("meta"), "published_at", self.now_ms() - 60_000)
        self.assertIsNone(json.loads(self.sluice("stats", "--json"))["classes"]["normal"]["wait_ms"], "an old estimate is none")

    def test_stats_wait_without_a_speed(self):
        """Workers that have computed nothing yet give a wait of 0 where nothing waits; an estimate by workers that are
        gone is unknown."""
        self.client.hset(self.sender.key("meta"), mapping={"published_at": self.now_ms(), "wait_ms_high": 0, "wait_ms_normal": 7})

        def waits():
            return [each["wait_ms"] for each in json.loads(self.sluice("stats", "--json"))["classes"].values()]
        self.assertEqual(waits(), [None] * 3)
        self.assertRegex(self.sluice("stats"), r"(?m)^nobody computes; pinned: any$")
        self.heartbeat("host-1-aa")
        self.client.hset(self.sender.key("meta"), mapping={"published_at": self.now_ms(), "wait_ms_high": -1, "wait_ms_normal": -1,
                                                           "wait_ms_low": -1})
        self.client.xadd(self.sender.key("requests:low"), {"text": "x"})
        self.assertEqual(waits(), [0, 0, None])
        self.client.set(self.sender.key("paused"), 1)
        self.assertEqual(waits(), [None] * 3)

    def test_stats_totals(self):
        self.assertIn("nothing was counted yet", self.sluice("stats"))
        self.client.hset(self.sender.key("stats"), mapping={"since": 1764000000123, "died": 2, "ignored": 7, "normal:done": 1200, "low:cancelled": 3,
                                                            "high:bad_request": 4, "normal:of a later version": 5})
        stats = json.loads(self.sluice("stats", "--json"))
        self.assertEqual((stats["since"], stats["died"], stats["ignored"], stats["ended"]), (1764000000123, 2, 7, {
            "high": {"done": 0, "bad_request": 4}, "normal": {"done": 1200}, "low": {"done": 0, "cancelled": 3}}))
        today = self.now_ms() // 86400000  # 91 days ago has the place of today
        self.client.hset(self.sender.key("stats"), mapping={f"day:{day % 91}": f"{day} {day % 7 + 1} 0" for day in range(today - 95, today - 1)})
        self.client.hset(self.sender.key("stats"), mapping={f"day:{(today + 1) % 91}": "1 2", "day:": "3 4 5", "day:x": f"{today + 9} 5 5"})
        days = [day for day in json.loads(self.sluice("stats", "--json"))["days"] if day["at"] < (today - 1) * 86400000]
        self.assertEqual(days, [{"at": day * 86400000, "done": day % 7 + 1, "errors": 0} for day in range(today - 89, today - 1)])
        text = self.sluice("stats")
        self.assertRegex(text, r"(?m)^died +2 workers since 2025-11-24 16:00:00 UTC$")
        self.client.hset(self.sender.key("stats"), "died", 1)
        self.assertRegex(self.sluice("stats"), r"(?m)^died +1 worker since 2025-11-24 16:00:00 UTC$")
        self.assertRegex(text, r"(?m)^ended since then +high +normal +low\ndone +0 +1200 +0\nbad_request +4 +0 +0\ncancelled +0 +0 +3$")
        self.assertRegex(text, r"(?m)^ignored +7 requests had unknown fields, which their replies name$")

    # top

    def top(self, *flags):
        child = subprocess.Popen([BINARY, "top", "--redis", self.server.socket, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stderr.close)
        self.addCleanup(child.kill)
        return child

    def look(self, child):
        """The lines that `top` prints next for a queue."""
        return list(iter(lambda: child.stdout.readline().rstrip(), ""))

    def test_top(self):
        """For a worker that has not reported since the last look, top shows its totals; otherwise the increase per
        second."""
        self.client.hset(self.sender.key("stats"), mapping={"since": "1764000000000", "normal:done": 100, "normal:too_large": 3})
        self.heartbeat("host-1-aa")
        self.client.xadd(self.sender.stream, {"text": "x"})
        child = self.top("--queue", self.queue)
        first = self.look(child)
        self.assertRegex(first[0], "^queue test: later 0, 0 due; dead letters 0; workers 1, 0 quiet, 0 tight$")
        self.assertRegex(first[3], r"^normal +1 +0 +unknown +0\.0 +0\.0$")
        self.assertRegex(first[6], r"^running +3 +1 +0\.0 +0\.0 +10\.0 +200\.0 +20\.0% +\d+ms  host-1-aa$")
        # One change at a time: a look in the middle of several would show some of them, and the next look the others.
        self.client.hset(self.sender.key("stats"), mapping={"normal:done": 100100, "normal:too_large": 1003})
        looks = iter(lambda: self.look(child), None)
        ended = next(look[3] for look in looks if not look[3].endswith(" 0.0"))
        self.assertRegex(ended, r"^normal +1 +0 +unknown +[1-9]\d+\.\d +[1-9]\d+\.\d$")
        self.heartbeat("host-1-aa", ago_ms=0, done=100040)
        spoken = next(look[6] for look in looks if "20.0%" not in look[6])
        self.assertRegex(spoken, r"^running +3 +1 +[1-9]\d+\.\d +0\.0 +0\.0 +0\.0 +0\.0% ")
        child.send_signal(signal.SIGINT)
        self.assertEqual((child.wait(timeout=10), child.stderr.read()), (0, ""))

    def test_top_whose_reader_leaves(self):
        """Output smaller than a buffer, and larger, of which a part is written before the rest is printed; no message
        about the pipe."""
        queues = ",".join(f'{{"queue": "{"q" * 60}{number}"}}' for number in range(20))
        for flags in (["--queue", self.queue], ["--config", self.write("queues.json", f'{{"queues": [{queues}]}}')]):
            child = self.top(*flags)
            self.assertTrue(child.stdout.readline())
            child.stdout.close()
            self.assertEqual((child.wait(timeout=10), child.stderr.read()), (IOERR, ""))

    def test_wrong_type_is_named(self):
        self.client.set(self.sender.key("dead"), "x")
        self.assertRegex(self.sluice("dead", "list", code=70), "XRANGE: .*wrong kind of value")

    # get

    def place(self, name):
        """The output of `get` for a request without a reply."""
        line, why = [line for line in self.sluice("get", name, code=UNAVAILABLE).splitlines() if "has ever joined" not in line]
        self.assertIn(f'no reply for "{name}" in queue test: ', why)
        return json.loads(line), why

    def test_get_says_where_a_request_is(self):
        stream, low = self.sender.stream, self.sender.key("requests:low")
        names = [self.client.xadd(stream, {"text": "x"}).decode() for _ in range(4)]
        self.assertEqual(self.place(names[3])[0], {"id": names[3], "status": "queued"})  # before the group exists
        for key in (stream, low):
            self.client.xgroup_create(key, "sluice", "0", mkstream=True)
        self.client.xreadgroup("sluice", "host-7-0a1b2c3d", {stream: ">"}, count=3)
        self.client.xclaim(stream, "sluice", 'a "b"', 0, [names[2]])
        self.assertEqual(self.place(names[2])[0], {"id": names[2], "status": "queued"})  # held by a consumer that is not a worker
        self.client.xclaim(stream, "sluice", "released", 0, [names[1]])
        self.client.xack(stream, "sluice", names[2])
        self.client.xdel(stream, names[2])
        places = [self.place(name)[0] for name in names]
        self.assertEqual(places, [{"id": names[0], "status": "running", "worker": "host-7-0a1b2c3d"}, {"id": names[1], "status": "queued"},
                                  {"id": names[2], "status": "unknown"}, {"id": names[3], "status": "queued"}])
        self.assertEqual(self.place(f"{int(names[3][:13]) + 9}-0")[0]["status"], "unknown")  # an id in the future
        self.client.zadd(self.sender.key("later"), {"low:5-0": 1795252518106})
        self.assertEqual(self.place("low:5-0")[0], {"id": "low:5-0", "status": "later", "due_at": 1795252518106})

    def test_get_finds_a_request_that_came_back(self):
        """It is another entry now; only `trouble` knows which."""
        self.client.hset(self.sender.key("trouble"), "low:1795252518106-0", "1 0 1795252519000-0")
        low = self.sender.key("requests:low")
        self.client.xgroup_create(low, "sluice", "0", mkstream=True)
        self.assertEqual(self.place("low:1795252518106-0")[0]["status"], "unknown")
        self.client.xadd(low, {"_id": "low:1795252518106-0", "text": "x"}, id="1795252519000-0")
        self.assertEqual(self.place("low:1795252518106-0")[0]["status"], "queued")
        self.client.xreadgroup("sluice", "host-7-0a1b2c3d", {low: ">"})
        self.assertEqual(self.place("low:1795252518106-0")[0]["status"], "running")

    def test_get_says_what_it_cannot_know(self):
        name = self.client.xadd(self.sender.stream, {"text": "x", "id": "order-42"}).decode()
        place, why = self.place("order-43")
        self.assertEqual(place["status"], "unknown")
        self.assertIn("its reply has expired, or it was never enqueued", why)
        self.assertEqual(self.place(name)[0]["status"], "queued")
        self.start_daemon(self.server)
        self.wait_until(lambda: self.client.xlen(self.sender.stream) == 0, "the reply")
        self.assertIn("is under its own id", self.place(name)[1])
        self.assertIn('"status":"done"', self.sluice("get", "order-42"))

    # submit

    def test_submit_options_become_fields(self):
        self.sluice("submit", "--class", "low", "--delay", "2h", "--expires-in", "3d", "--max-attempts", "2", "--tenant", "acme",
                    "--meta", "m", "--results", "web-1", "a text")
        fields = self.client.xrange(self.sender.key("requests:low"))[0][1]
        self.assertEqual(fields, {b"text": b"a text", b"delay": b"7200000", b"expires_in": b"259200000", b"max_attempts": b"2",
                                  b"tenant": b"acme", b"meta": b"m", b"notify": b"stream:web-1"})
        out = self.sluice("submit", "--class", "high", "x").strip()
        self.assertEqual(out, "high:" + self.client.xrange(self.sender.key("requests:high"))[0][0].decode())
        self.sluice("submit", "--delay", "5", "x", code=USAGE)
        self.sluice("submit", "--wait", "--results", "web", "x", code=USAGE)

    def test_submit_inputs_is_one_request(self):
        awkward = ['plain', 'with "quotes" and \\', 'tab\there', 'ä世界', '']
        self.sluice("submit", "--inputs", "--id", "bulk", *awkward)
        entries = self.client.xrange(self.sender.stream)
        self.assertEqual(len(entries), 1)
        self.assertEqual(json.loads(entries[0][1][b"inputs"]), awkward)
        self.assertEqual(entries[0][1][b"id"], b"bulk")
        lines = self.write("lines", "".join(text + "\n" for text in texts(20)))
        self.sluice("submit", "--inputs", "--input", lines)
        self.assertEqual(json.loads(self.client.xrange(self.sender.stream)[1][1][b"inputs"]), texts(20))
        self.sluice("submit", "--inputs", "--input", os.devnull)
        self.assertEqual(self.client.xlen(self.sender.stream), 2)

    def test_submit_waits_for_every_encoding(self):
        """All encodings print the same numbers, up to their precision; several texts give an array of arrays."""
        self.start_daemon(self.server)

        def submit(*arguments):
            return json.loads(self.sluice("submit", "--wait", *arguments))["embedding"]
        exact = submit("hello world")
        self.assertEqual(len(exact), 64)
        self.assertEqual(submit("--encoding", "f32", "hello world"), exact)
        self.assertEqual(submit("--encoding", "base64", "--class", "high", "hello world"), exact)
        for half, whole in zip(submit("--encoding", "f16", "--class", "low", "hello world"), exact):
            self.assertAlmostEqual(half, whole, delta=abs(whole) / 2048 + 1e-7)
        for encoding in ("json", "f32", "base64"):
            rows = submit("--encoding", encoding, "--inputs", "hello world", "another", "hello world")
            self.assertEqual([len(row) for row in rows], [64] * 3)
            self.assertEqual((rows[0], rows[2]), (exact, exact))
            self.assertNotEqual(rows[1], exact)
        for encoding, numbers in (("int8", [min(max(math.floor((x + 1) / (2 / 255)) - 128, -128), 127) for x in exact]),
                                  ("ubinary", [sum((x > 0) << 7 - i for i, x in enumerate(exact[at:at + 8])) for at in range(0, 64, 8)])):
            rows = submit("--encoding", encoding, "--inputs", "hello world", "another", "hello world")
            self.assertEqual((rows[0], rows[2]), (numbers, numbers), encoding)
            self.assertNotEqual(rows[1], numbers)

    def test_submit_says_that_nobody_works(self):
        """It says so after two seconds, not only at its timeout; it does not if a worker has published since."""
        result = self.run_sluice("submit", "--wait", "--timeout-s", "3", "x", "--redis", self.server.socket, "--queue", self.queue)
        said = result.stderr.decode().splitlines()
        self.assertEqual((result.returncode, len(said)), (75, 3), said)
        self.assertIn("no worker has ever joined queue test", said[0])
        self.assertIn("no worker seems to be running on queue test; waiting on, for up to 3 s", said[1])
        self.assertIn("no reply for ", said[2])
        self.client.hset(self.sender.key("meta"), "published_at", self.now_ms() + 60_000)
        self.assertNotIn("no worker seems", self.sluice("submit", "--wait", "--timeout-s", "3", "x", code=75))

    def test_help_lists_the_commands(self):
        listing = self.run_sluice("--help").stdout.decode()
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "README.md"), encoding="utf-8") as file:
            readme = file.read()
        for command in ("cancel", "stats", "workers", "dead", "caps", "pin", "pause", "resume", "doctor"):
            self.assertRegex(listing, rf"(?m)^  {command} +[A-Z]")
            self.assertTrue(re.search(rf"sluice {command}\b", readme), f"README does not mention sluice {command}")
