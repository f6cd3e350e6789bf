"""Random workers, some of which die, pause or repeat calls, and a careless operator: whatever the order of the scripts,
each request ends once and nothing is left over."""
# ctest: redis
# ctest-once

import random

import redis
from case import SluiceCase, scaled
from script_scenes import LAST_ID, TO_COME
from scripts import CLASSES, PREFIX, Desk, End, Park, plain

STEPS, SEEDS = 400, 12


class Worker:
    def __init__(self, name):
        self.name = name
        self.held = {}  # (class, entry id) -> fields
        self.places = {}  # the same -> place among all that was read; unknown if it was not read, or twice


class World:
    def __init__(self, case, desk, seed):
        self.case, self.desk, self.client = case, desk, desk.client
        self.chance = random.Random(seed)
        self.names, self.replies, self.answers, self.cancelled = [], {}, {}, 0
        self.made_up = {}  # reply id -> answers, for entries whose own id a producer has made up
        self.living, self.zombies, self.workers = [], [], 0
        self.seen, self.tries, self.trimmed = set(), 0, 0
        for _ in range(3):
            self.hire()

    # --- Workers ---

    def hire(self):
        worker = Worker(f"w{self.workers}")
        self.workers += 1
        self.desk.run(self.desk.join(me=worker.name))
        self.living.append(worker)

    def die(self):
        """Ends a worker's lease. The worker may only be asleep: then it later goes on with its entries."""
        worker = self.living.pop(self.chance.randrange(len(self.living)))
        self.client.delete(self.desk.key(f"alive:{worker.name}"))
        self.zombies.append(worker)
        self.hire()

    def leave(self):
        worker = self.living.pop(self.chance.randrange(len(self.living)))
        for which in CLASSES:
            self.call("release", me=worker.name, which=which, last=2 if which == "low" else 1)
        self.hire()

    def anyone(self):
        return self.chance.choice(self.living + self.zombies)

    def call(self, script, *arguments, **options):
        self.seen.add(script)
        return self.desk.run(getattr(self.desk, script)(*arguments, **options))

    # --- Held entries ---

    def hold(self, worker, which, entries):
        for entry_id, *_, fields in entries:
            worker.held[which, entry_id] = dict(zip(fields[::2], fields[1::2]))
            worker.places.pop((which, entry_id), None)

    def pick(self, worker, cancels=False):
        """Returns a class and some held entries of it: (entry id, name, whether the entry claims the name)."""
        which = self.chance.choice(CLASSES)
        ids = [entry_id for (of, entry_id), fields in worker.held.items() if of == which and ("cancel" in fields) == cancels]
        ids = self.chance.sample(ids, min(len(ids), self.chance.randint(1, 4)))
        return which, [(i, worker.held[which, i].get("_id", PREFIX[which] + i), "_id" in worker.held[which, i]) for i in ids]

    def drop(self, worker, which, ids):
        if self.chance.random() < 0.9:  # otherwise the answer was lost, and the call is repeated
            for entry_id in ids:
                worker.held.pop((which, entry_id), None)
                worker.places.pop((which, entry_id), None)

    def answered(self, name, reply=None):
        answers, of = (self.made_up, reply) if reply in self.made_up else (self.answers, name)
        answers[of] = answers.get(of, 0) + 1

    def add(self, which, fields, entry_id="*"):
        """Adds an entry and returns its name; None if Redis has no more ids, or this id is not above the last."""
        try:
            return PREFIX[which] + plain(self.client.xadd(self.desk.stream(which), fields, entry_id))
        except redis.ResponseError:
            return None

    # --- Steps ---

    def submit(self):
        which = self.chance.choice(CLASSES)
        fields = {"text": "x", "tenant": self.chance.choice("ab")}
        if self.chance.random() < 0.3:
            fields["id"] = f"id{len(self.names)}"
        if self.chance.random() < 0.2:
            fields["notify"] = self.chance.choice(["1", "stream:hits"])
        name = self.add(which, fields)
        if name:
            self.names.append(name)
            self.replies[name] = fields.get("id", name)

    def forge(self):
        if self.names:
            fields = {"_id": self.chance.choice(self.names), "text": "forged"}
            name = self.add("normal", fields)
            if name:
                self.names.append(name)
                self.replies[name] = name

    def make_up(self):
        """Adds an entry with a future id; often the last possible one, though it may be in use."""
        reply = f"made-up-{self.tries}"
        self.tries += 1
        fields = {"text": "x", "id": reply}
        if self.add(self.chance.choice(CLASSES), fields, self.chance.choice([f"{TO_COME + self.tries}-0", LAST_ID])):
            self.made_up[reply] = 0

    def mend(self):
        self.call("mend", self.chance.randint(1, 8), self.chance.choice([1, 100, 1000000]), self.chance.choice(self.living).name)

    def ask_for_an_end(self):
        if self.names:
            self.add(self.chance.choice(CLASSES), {"cancel": self.chance.choice(self.names)})

    def read(self):
        worker, which = self.chance.choice(self.living), self.chance.choice(CLASSES)
        answer = self.client.execute_command("XREADGROUP", "GROUP", "sluice", worker.name, "COUNT", self.chance.randint(1, 6),
                                             "STREAMS", self.desk.stream(which), ">")
        for _, entries in answer:
            self.tries += 1
            for number, (entry_id, fields) in enumerate(entries):
                entry = which, plain(entry_id)
                worker.places[entry] = None if entry in worker.held else (self.tries, number)
                worker.held[entry] = plain(fields)

    def runs(self, worker, which, ends):
        """The lengths of the runs with which these plain ends begin."""
        lengths, before = [], None
        for end in ends:
            place = worker.places.get((which, end.id))
            if not end.plain or not place:
                break
            if before and place == (before[0], before[1] + 1):
                lengths[-1] += 1
            else:
                lengths.append(1)
            before = place
        return lengths

    def settle(self, worker=None, kind=None):
        worker = worker or self.anyone()
        which, picked = self.pick(worker)
        if not picked:
            return
        ends = []
        for entry_id, name, claims in picked:
            fields = worker.held[which, entry_id]
            ends.append(End(entry_id, kind or self.chance.choice(["done", "done", "error", "fail", "dead"]), name,
                            claims=claims, reply=fields.get("id", name),
                            notify={"1": "1", "stream:hits": "hits"}.get(fields.get("notify"))))
            end = ends[-1]
            end.plain = end.kind == "done" and end.reply == PREFIX[which] + entry_id and not claims and not end.notify
            end.staged = self.desk.stage(len(ends)) if end.plain and self.chance.randrange(2) else None
        ends.sort(key=lambda end: (not end.plain, [int(part) for part in end.id.split("-")]))
        picked.sort(key=lambda entry: [end.id for end in ends].index(entry[0]))
        runs = self.runs(worker, which, ends)
        self.trimmed += bool(runs)
        results = self.call("settle", *ends, which=which, consumer=worker.name, runs=runs)
        self.client.delete(*(self.desk.key(f"stage:{number}-1") for number in range(1, len(ends) + 1)))
        for (entry_id, name, _), result in zip(picked, results):
            if result > 0:
                self.answered(name, worker.held[which, entry_id].get("id"))
            if result == -3:
                worker.held[which, entry_id].pop("_id")  # it has its own name from now on
        self.drop(worker, which, [entry[0] for entry, result in zip(picked, results) if result != -3])

    def defer(self):
        worker = self.anyone()
        which, picked = self.pick(worker)
        delay = self.chance.choice([0, 0, 3600000])
        parks = [Park(i, name, claims, self.chance.randint(1, 4), delay) for i, name, claims in picked]
        results = self.call("defer", *parks, which=which, consumer=worker.name)
        for (entry_id, _, _), result in zip(picked, results):
            if result == -3:
                worker.held[which, entry_id].pop("_id")
        self.drop(worker, which, [entry[0] for entry, result in zip(picked, results) if result != -3])

    def charge(self):
        worker = self.anyone()
        which, picked = self.pick(worker)
        how = self.chance.choice(["alone", "group"])
        entries = [(entry_id, name) if claims else entry_id for entry_id, name, claims in picked]
        if entries:
            self.call("charge", *entries[:None if how == "group" else 1], which=which, consumer=worker.name, how=how)

    def release(self):
        worker = self.chance.choice(self.living)
        which, picked = self.pick(worker)
        self.call("release", *(entry[0] for entry in picked), which=which, me=worker.name)
        self.drop(worker, which, [entry[0] for entry in picked])

    def cancel(self, worker=None):
        worker = worker or self.anyone()
        which, picked = self.pick(worker, cancels=True)
        for entry_id, _, _ in picked:
            target = worker.held[which, entry_id]["cancel"]
            options = {"which": which, "consumer": worker.name,
                       "target_class": next((c for c in ("high", "low") if target.startswith(c)), "normal")}
            result = self.call("cancel", entry_id, target, **options)
            if result[0] == -5:
                result = self.call("cancel", entry_id, target, result[1], result[2], result[3], **options)
            self.case.assertIn(result[0], (0, 1, 2))
            if result[0] == 1:
                self.cancelled += 1
                self.answered(target)
            self.drop(worker, which, [entry_id])

    def promote(self):
        self.call("promote", self.chance.randint(1, 10))

    def take(self):
        """Runs reclaim, fair or sweep."""
        worker, which = self.chance.choice(self.living), self.chance.choice(CLASSES)
        consumers = [plain(c["name"]) for c in self.client.xinfo_consumers(self.desk.stream(which), "sluice")]
        script, arguments = self.chance.choice([
            ("reclaim", ["released", *(c for c in consumers if c not in (worker.name, "released"))]), ("fair", ["a"]), ("sweep", [])])
        me = {"me" if script == "reclaim" else "consumer": worker.name}
        self.hold(worker, which, self.call(script, *arguments, which=which, most=self.chance.randint(1, 8), **me)[0])

    def shed(self):
        worker, which = self.chance.choice(self.living), self.chance.choice(CLASSES)
        self.hold(worker, which, self.call("shed", self.chance.randint(5, 20), which=which, consumer=worker.name, most=3)[0])

    def heavy_hand(self):
        """An operator destroys a group, deletes a consumer or removes names from later."""
        stream, what = self.desk.stream(self.chance.choice(CLASSES)), self.chance.randrange(3)
        if what == 0:
            self.client.xgroup_destroy(stream, "sluice")
            self.client.xgroup_create(stream, "sluice", "0")
        elif what == 1:
            self.client.xgroup_delconsumer(stream, "sluice", self.chance.choice(self.living).name)
        else:
            self.client.zremrangebyrank(self.desk.key("later"), 0, 1)

    def step(self):
        steps = [(self.submit, 8), (self.read, 8), (self.settle, 6), (self.defer, 4), (self.promote, 2), (self.take, 4),
                 (self.charge, 1), (self.release, 1), (self.ask_for_an_end, 1), (self.cancel, 2), (self.shed, 1), (self.die, 1),
                 (self.leave, 0.5), (self.forge, 0.5), (self.heavy_hand, 0.3), (self.make_up, 0.4), (self.mend, 1)]
        self.chance.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()

    # --- The end ---

    def finish(self):
        """All workers but one die; that one finishes everything."""
        last = Worker("last")
        self.desk.run(self.desk.join(me=last.name))
        self.chance = random.Random(0)
        for worker in self.living:
            self.client.delete(self.desk.key(f"alive:{worker.name}"))
        self.living, self.zombies = [last], []
        for _ in range(200):
            for name in plain(self.client.zrange(self.desk.key("later"), 0, -1)):
                self.client.zadd(self.desk.key("later"), {name: 1})
            self.call("mend")
            self.call("promote")
            for which in CLASSES:
                consumers = [plain(c["name"]) for c in self.client.xinfo_consumers(self.desk.stream(which), "sluice")]
                self.hold(last, which, self.call("reclaim", "released", *(c for c in consumers if c != "last"), which=which,
                                                 me="last")[0])
                self.hold(last, which, self.call("sweep", which=which, consumer="last")[0])
            self.read()
            self.cancel(last)
            self.settle(last, "done")
            if not last.held and not any(self.client.xlen(self.desk.stream(which)) for which in CLASSES) and \
                    not self.client.exists(self.desk.key("later:data")):
                return
        raise AssertionError(f"it never ends: {last.held}")


class Random(SluiceCase):
    def setUp(self):
        super().setUp()
        self.client = self.start_redis(aof=None).client()

    def test_each_request_ends_once(self):
        requests = cancelled = trimmed = 0
        seen = set()
        for seed in range(scaled(SEEDS)):
            with self.subTest(seed=seed):
                self.client.flushall()
                world = World(self, Desk(self.client).groups(), seed)
                for _ in range(STEPS):
                    world.step()
                world.finish()
                self.check(world)
                requests, cancelled, trimmed = requests + len(world.names), cancelled + world.cancelled, trimmed + world.trimmed
                seen |= world.seen
        self.assertGreater(requests, 80 * scaled(SEEDS) / 2)
        self.assertGreater(min(cancelled, trimmed), 0)
        self.assertEqual(seen, {"settle", "defer", "promote", "charge", "release", "reclaim", "cancel", "fair", "sweep", "shed",
                                "mend"})

    def check(self, world):
        for name in world.names:
            self.assertEqual(world.answers.get(name, 0), 1, f"{name} was answered {world.answers.get(name, 0)} times")
            reply = world.desk.reply(world.replies[name])
            self.assertIn(reply.get("status"), ("done", "error", "cancelled"), name)
            self.assertEqual(reply["entry"], name)
        self.assertEqual(set(world.answers), set(world.names))
        for reply, answers in world.made_up.items():
            self.assertEqual((reply, answers, world.desk.reply(reply).get("status") is not None), (reply, 1, True))
        for which in CLASSES:
            self.assertEqual((world.desk.entries(which), world.desk.owners(which)), ({}, {}))
        left = {plain(key).split("}:")[1].split(":")[0] for key in self.client.keys()}
        self.assertLessEqual(left, {"requests", "reply", "wake", "results", "dead", "meta", "alive"}, "something stays behind")
