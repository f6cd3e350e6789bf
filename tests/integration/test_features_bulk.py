"""Arrays of texts, notifications, fair shares, and a queue that is full or paused."""
# ctest-cost: 25

import json

from case import scaled
from features import HOLD, FeatureCase
from proxy import Proxy


class Inputs(FeatureCase):
    def test_one_reply_for_all(self):
        self.serve("--max-batch-rows", "7")
        texts = [f"{number} of many" for number in range(40)]
        reference = self.reference()
        reference.learn(texts)
        f32 = self.add("low", id="f32", inputs=json.dumps(texts), encoding="f32")
        self.add(id="json", inputs=json.dumps(texts))
        self.add(id="one", inputs=json.dumps(texts[:1]))
        for id, many in (("f32", texts), ("json", texts), ("one", texts[:1])):
            reply = self.wait_reply(id)
            self.assertEqual((reply["count"], reply["dim"]), (len(many), 64))
            self.assertEqual(self.vectors(reply), [reference(text) for text in many], id)
        self.assertEqual(self.reply("f32")["entry"], f32)
        self.wait_empty()

    def test_all_or_nothing(self):
        self.serve()
        bad = self.add(inputs=json.dumps(["good", "", "good"]))
        long = self.add(inputs=json.dumps(["good", "good", "word " * 5000]), truncate="0")
        for name, index, code in ((bad, 1, b"bad_request"), (long, 2, b"too_long")):
            reply = self.wait_reply(name)
            self.assertEqual((reply["status"], reply["code"], reply["index"]), (b"error", code, index), reply)
            self.assertNotIn("embedding", reply)
        self.wait_empty()


class EqualTexts(FeatureCase):
    def test_computed_once(self):
        """There is one row in a pass: sixty passes with the word would be noticed."""
        self.serve("--max-batch-rows", "1")
        self.hold()
        text = f"{HOLD} the same"
        names = [self.add(("high", "normal", "low")[number % 3], text=text, tenant=f"t{number % 4}", encoding=encoding)
                 for number, encoding in enumerate(("f32", "json", "base64") * 15)]
        bulk = self.add(inputs=json.dumps([text] * 20), encoding="f32")
        self.wait_held(bulk)
        self.open_gate()
        reference = self.reference()
        reference.learn([text])
        for name in names:
            self.assertEqual(self.vectors(self.wait_reply(name)), [reference(text)])
        self.assertEqual(self.vectors(self.wait_reply(bulk)), [reference(text)] * 20)
        self.assertLess(self.fired("held"), 10)
        self.wait_empty()


class Telling(FeatureCase):
    def test_notify_by_a_stream(self):
        self.serve()
        names = {f"job-{number}": self.add(id=f"job-{number}", text=f"{number} hello", notify="stream:web-1")
                 for number in range(50)}
        names["wrong"] = self.add(id="wrong", text="hello", encoding="f99", notify="stream:web-1")
        seen, last = {}, "0"
        while len(seen) < len(names):
            ((_, entries),) = self.client.xread({self.key("results:web-1"): last}, block=20000)
            for last, fields in entries:
                self.assertNotIn(fields[b"id"], seen)
                seen[fields[b"id"].decode()] = (fields[b"status"].decode(), fields[b"entry"].decode())
        self.assertEqual(seen, {id: ("error" if id == "wrong" else "done", name) for id, name in names.items()})
        self.assertGreater(self.client.pttl(self.key("results:web-1")), 0)
        self.wait_empty()


class Shares(FeatureCase):
    def test_a_tenant_of_ten_beside_one_of_40000(self):
        """The ten are last in the stream, behind all entries of the other tenant. The worker searches 20,000 entries a
        second for them, whatever it computes meanwhile; with long texts the search is faster than computing."""
        count = scaled(40000)
        pipe = self.client.pipeline(transaction=False)
        for number in range(count):
            pipe.xadd(self.key("requests"), {"text": f"{number}" + " hello world" * 30, "tenant": "big", "encoding": "f32"})
            if number % 10000 == 9999:
                pipe.execute()
        pipe.execute()
        small = [self.add(text=f"{number} small", tenant="small", encoding="f32") for number in range(10)]
        self.serve()
        for name in small:
            self.assertEqual(self.wait_reply(name, timeout=120)["status"], b"done")
        left = self.client.xlen(self.key("requests"))
        print(f"{left} of {count} were left when the ten were done")
        self.assertGreater(left, count // 4)

    def test_tenants_that_wait_together_take_turns(self):
        self.serve("--max-batch-rows", "1")
        self.hold()
        tenants = ["big"] * 300 + ["small"] * 10
        names = self.add_many([("normal", {"text": f"{number} {tenant}", "tenant": tenant, "notify": "stream:order"})
                               for number, tenant in enumerate(tenants)])
        big, small = names[:300], names[300:]
        self.wait_until(lambda: self.pending_names() >= set(names), "all to be read")
        self.open_gate()
        order = self.wait_order(310)
        self.assertLess(max(order.index(name) for name in small), 100)
        self.assertEqual(set(order), {*big, *small})
        self.wait_empty()


class Pressure(FeatureCase):
    def test_the_newest_above_the_cap_are_refused(self):
        self.client.hset(self.key("meta"), "cap_normal", 50)
        self.serve()
        self.pause()
        pipe = self.client.pipeline()  # all at once: each look refuses the newest, and these must be the newest
        for number in range(200):
            pipe.xadd(self.key("requests"), {"text": f"{number} hello"})
        names = [entry.decode() for entry in pipe.execute()]
        self.wait_until(lambda: self.reply(names[-1]), "the newest to be refused")
        self.client.delete(self.key("paused"))
        codes = {name: self.wait_reply(name) for name in names}
        refused = [name for name in names if codes[name].get("code") == b"queue_full"]
        self.assertTrue(100 <= len(refused) < 200, len(refused))
        self.assertEqual(refused, names[-len(refused):])
        for name in refused:
            self.assertGreaterEqual(int(codes[name]["retry_after_ms"]), 1000)
        for name in names[:-len(refused)]:
            self.assertEqual(codes[name]["status"], b"done")
        self.wait_empty()

    def test_low_has_no_cap_unless_it_is_set(self):
        """The depth of `low` is published all the same."""
        self.client.hset(self.key("meta"), "cap_normal", 1)
        self.serve()
        self.pause()
        names = [self.add("low", text=f"{number} hello") for number in range(100)]
        self.wait_until(lambda: self.client.hget(self.key("meta"), "depth_low") == b"100", "the depth of low")
        meta = self.client.hgetall(self.key("meta"))
        self.assertEqual(meta[b"depth_normal"], b"0")
        self.assertIn(b"wait_ms_low", meta)
        self.client.delete(self.key("paused"))
        for name in names:
            self.assertEqual(self.wait_reply(name)["status"], b"done")
        self.wait_empty()


class Idle(FeatureCase):
    def test_an_idle_worker_is_quiet(self):
        """Counts commands in ten seconds of an idle queue, from the daemon that does the chores and from a second
        one."""
        proxies = []
        for _ in range(2):
            proxies.append(Proxy(self.directory, self.server.socket))
            self.children.append(proxies[-1])
            self.make_daemon(self.server, "--lease-ms", "5000", address=proxies[-1].path).start().wait_ready(self.client)
            self.wait_reply(self.add(text="hello"))
        started, before = self.server_time(), [len(proxy.commands) for proxy in proxies]
        self.wait_until(lambda: self.server_time() >= started + 10, "ten seconds")
        sent = [[words[0] for words in proxy.commands[count:]] for proxy, count in zip(proxies, before)]
        seconds = self.server_time() - started
        for words, most in zip(sent, (28, 8)):  # three a second are XPENDING, sent with each pulse
            print(f"{len(words) / seconds:.1f} commands a second: {dict((word, words.count(word)) for word in set(words))}")
            self.assertTrue(1 < len(words) / seconds < most, len(words))

    def server_time(self):
        seconds, microseconds = self.client.time()
        return seconds + microseconds / 1e6
