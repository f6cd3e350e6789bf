"""The scripts of lua/, called as the daemon calls them: in the tests only this file knows the layout of KEYS and ARGV.

A Call is a script with its keys and arguments, so that a test can run the same one again, as another user or on another
server. `Desk` makes calls, runs them, and says where a request is."""

import json
import os
import re
import struct
from dataclasses import dataclass, field

import redis

from case import RedisCase

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lua")
PREFIX = {"high": "high:", "normal": "", "low": "low:"}
NUMBER = {"high": 0, "normal": 1, "low": 2}
CLASSES = list(PREFIX)

# Gives everything in one answer, because the test of cut files calls it thousands of times.
DUMP = """
local call, all = redis.call, {}
local read = {
  string = function(key) return call('GET', key) end,
  hash = function(key)
    local fields = call('HKEYS', key)
    table.sort(fields)
    for i, field in ipairs(fields) do fields[i] = {field, call('HGET', key, field)} end
    return fields
  end,
  list = function(key) return call('LRANGE', key, 0, -1) end,
  zset = function(key) return call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  stream = function(key)
    local groups = {}
    for i, group in ipairs(call('XINFO', 'GROUPS', key)) do
      groups[i] = {group[2], group[8], {}}
      for j, pending in ipairs(call('XPENDING', key, group[2], '-', '+', 100000)) do
        groups[i][3][j] = {pending[1], pending[2], pending[4]}
      end
    end
    return {call('XRANGE', key, '-', '+'), groups}
  end,
}
local keys = call('KEYS', '*')
table.sort(keys)
for i, key in ipairs(keys) do
  local kind = call('TYPE', key).ok
  all[i] = {key, kind, call('PEXPIRETIME', key), read[kind](key)}
end
return all
"""


COME_BACK = """
local parked = cmsgpack.unpack(redis.call('HGET', KEYS[2], ARGV[1]))
local id = redis.call('XADD', KEYS[1], ARGV[2], '_id', ARGV[1], '_attempt', parked[2], '_first_at', parked[3], unpack(parked[4]))
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], (parked[2] - 1) .. ' 0 ' .. id)
return id
"""


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return file.read()


def on_one_line(piece):
    return " ".join(line.strip() for line in piece.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def source(script):
    """The script as it is built into the program: see cmake/Scripts.cmake."""
    return re.sub(r"^-- include (lib/\w+\.lua)$", lambda line: on_one_line(read(line[1])), read(f"{script}.lua"), flags=re.M)


def scripts():
    return sorted(name[:-4] for name in os.listdir(SOURCE) if name.endswith(".lua"))


@dataclass
class Call:
    script: str
    keys: list
    arguments: list = field(default_factory=list)

    def run(self, client):
        return plain(client.eval(source(self.script), len(self.keys), *self.keys, *self.arguments))


@dataclass
class End:
    """One entry of a settle call. `notify`: None, "1" or the name of a results stream; `reply`: the <id> of its key;
    `staged`: the number of the stage key that holds its result (see Desk.stage). `plain`: it is sent as a plain one, which
    is staged; the plain ones come first."""

    id: str
    kind: str = "done"
    name: str = None
    ttl_ms: int = 3600000
    notify: str = None
    claims: bool = False
    first_ms: int = None  # the name's own time
    since_ms: int = 0
    fields: dict = None
    info: dict = field(default_factory=lambda: {"attempts": 1})  # members of its `info`
    reply: str = None
    staged: int = None
    plain: bool = False
    into: tuple = None  # key and field of another hash for the vector
    stream: str = None  # the name of its stream of tokens
    tokens: object = "-"  # those that must be on the record


@dataclass
class Tokens:
    """One text of a tokens call."""

    id: str
    stream: str
    index: int
    ids: tuple
    text: str
    name: str = None
    claims: bool = False
    reply: str = None
    ttl_ms: int = 3600000


@dataclass
class Park:
    """One entry of a defer call."""

    id: str
    name: str = None
    claims: bool = False
    attempt: int = 2
    delay_ms: int = 0
    due_at_ms: int = 0


def plain(value):
    """Answers with text instead of bytes, wherever they are text."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def flat(reply):
    """A reply with text instead of bytes, and the members of its `info` in place of it."""
    fields = plain(reply)
    info = json.loads(fields.pop("info", "{}"))
    return {**fields, **info}


class Desk:
    def __init__(self, client, queue="q"):
        self.client = client
        self.base = f"sluice:{{{queue}}}:"

    def key(self, suffix):
        return self.base + suffix

    def stream(self, which="normal"):
        """The key of a class's stream, or of the control stream."""
        return self.key({"normal": "requests", "control": "control"}.get(which, f"requests:{which}"))

    def do(self, *words):
        return plain(self.client.execute_command(*words))

    def run(self, call, client=None):
        return call.run(client or self.client)

    # --- The commands of a producer, and XREADGROUP ---

    def groups(self):
        for which in CLASSES:
            self.client.xgroup_create(self.stream(which), "sluice", "0", mkstream=True)
        return self

    def add(self, entry_id, which="normal", **fields):
        self.client.xadd(self.stream(which), fields or {"text": "hello"}, entry_id)
        return entry_id

    def read(self, consumer, which="normal", count=None):
        answer = self.client.xreadgroup("sluice", consumer, {self.stream(which): ">"}, count=count)
        return [plain(entry_id) for _, entries in answer for entry_id, _ in entries]

    def deliver(self, consumer, *entry_ids, which="normal"):
        for entry_id in entry_ids:
            self.add(entry_id, which)
        return self.read(consumer, which)

    def set_last_id(self, last, which="normal"):
        """XSETID, also below the id of a deleted entry: servers from Redis 7.2 on refuse that, unless they forget that entry first."""
        self.do("XSETID", self.stream(which), "18446744073709551615", "MAXDELETEDID", "0-1")
        self.do("XSETID", self.stream(which), last)

    # --- Calls ---

    def settle(self, *ends, which="normal", consumer="me", runs=()):
        plain_ends = [end for end in ends if end.plain]
        shared = (plain_ends[0].ttl_ms, next(iter(plain_ends[0].fields or {"embedding": "v"}))) if plain_ends else (0, "")
        into = [word for number, end in enumerate(ends, start=1) if end.into for word in (number, *end.into)]
        ids = sorted((end.id for end in ends), key=lambda entry: [int(part) for part in entry.split("-")])
        replies, others, arguments = [], [], [consumer, ',"model":"m","revision":"r"', len(ends), ids[0], ids[-1], len(into) // 3, *into,
                                      len(plain_ends), *shared, len(runs), *runs]
        for end in ends:
            name = end.name or PREFIX[which] + end.id
            reply = end.reply or name
            notify = {None: "0", "1": "1"}.get(end.notify, "s")
            replies.append(self.key(f"reply:{reply}"))
            if end.notify:
                others.append(self.key(f"wake:{reply}" if notify == "1" else f"results:{end.notify}"))
            if end.staged is not None:
                others.append(self.key(f"stage:{end.staged}-1"))
            if end.stream:
                others += [self.key(f"tokens:{end.stream}"), self.key(f"sent:{name}")]
            told = {} if end.staged is not None else end.fields
            if told is None:
                told = {"embedding": "v"} if end.kind == "done" else {"code": "internal", "message": "x"}
            words = [word for pair in told.items() for word in pair]
            first_ms = re.search(r"(\d+)-\d+$", name)[1] if end.first_ms is None else end.first_ms
            info = "," + json.dumps(end.info, ensure_ascii=False)[1:-1]
            if end.plain:
                arguments += [end.id, int(first_ms) + end.since_ms, info, "" if end.staged is not None else words[1]]
            else:
                arguments += [end.id, end.kind, name, end.ttl_ms, notify, int(end.claims),
                              end.tokens if end.stream else "", first_ms, end.since_ms, info, len(words), *words]
        keys = [self.stream(which), self.key("trouble"), self.key("dead"), self.key("meta"), *replies, *others]
        return Call("settle", keys, arguments)

    def tokens(self, *texts, which="normal", consumer="me"):
        keys, arguments = [self.stream(which), self.key("trouble")], [consumer]
        for text in texts:
            name = text.name or PREFIX[which] + text.id
            keys += [self.key(f"tokens:{text.stream}"), self.key(f"sent:{name}")]
            arguments += [text.id, name, int(text.claims), text.reply or name, text.ttl_ms, text.index,
                          struct.pack(f"<{len(text.ids)}i", *text.ids), text.text]
        return Call("tokens", keys, arguments)

    def texts(self, stream):
        """The entries of a stream of tokens."""
        return [plain(fields) for _, fields in self.client.xrange(self.key(f"tokens:{stream}"))]

    def stage(self, number, **fields):
        """The result of entry `<number>-1` as the daemon writes large ones ahead of their settle, in one transaction with it."""
        self.client.hset(self.key(f"stage:{number}-1"), mapping={"status": "done", **(fields or {"embedding": "v"})})
        return number

    def defer(self, *parks, which="normal", consumer="me"):
        arguments = [consumer, NUMBER[which]]
        for park in parks:
            arguments += [park.id, park.name or PREFIX[which] + park.id, int(park.claims), park.attempt, park.delay_ms,
                          park.due_at_ms]
        return Call("defer", [self.stream(which), *map(self.key, ("later", "later:data", "trouble", "meta"))], arguments)

    def promote(self, most=100):
        return Call("promote", [*map(self.key, ("later", "later:data", "trouble")), *map(self.stream, CLASSES)], [most])

    def mend(self, most=64, large=524288, consumer="me"):
        """A mend of the entries that are ahead of the clock now, for which the daemon looks first."""
        seconds, micros = self.client.time()
        seen = [(NUMBER[which], entry_id, "take" if sum(len(word) for pair in fields.items() for word in pair) > large else "move")
                for which in CLASSES if self.client.type(self.stream(which)) == b"stream"
                for entry_id, fields in self.client.xrange(self.stream(which), min=seconds * 1000 + micros // 1000 + 2000)]
        return Call("mend", [*map(self.key, ("later", "later:data", "trouble", "meta")), *map(self.stream, CLASSES)],
                    [consumer, *(word for entry in seen[:most] for word in entry)])

    def charge(self, *entries, which="normal", consumer="me", attempt=1, how="alone"):
        """`entries`: ids, or (id, name) pairs for those that claim a name."""
        arguments = [consumer, how]
        for entry in entries:
            entry_id, name, claims = (entry, PREFIX[which] + entry, 0) if isinstance(entry, str) else (*entry, 1)
            arguments += [entry_id, name, claims, attempt]
        return Call("charge", [self.stream(which), self.key("trouble")], arguments)

    def reclaim(self, *consumers, leaseless=(), which="normal", me="me", most=100, most_bytes=100000):
        keys = [self.stream(which), self.key("trouble"), *(self.key(f"alive:{name}") for name in consumers)]
        return Call("reclaim", keys, [me, most, most_bytes, PREFIX[which], *consumers, *leaseless])

    def address(self, entry_id, which="normal"):
        return Call("address", [self.stream(which), self.key("trouble")], [entry_id, PREFIX[which]])

    def release(self, *ids, which="normal", me="me", token="token", last=0):
        keys = [self.stream(which), *map(self.key, (f"alive:{me}", "trouble", "workers", "housekeeper"))]
        return Call("release", keys, [me, token, last, PREFIX[which], *ids])

    def cancel(self, entry_id, target, reply=None, notify="0", results="", stream="", which="high", target_class="normal",
               consumer="me", ttl_ms=3600000):
        reply = reply or target
        other = self.key(f"results:{results}" if notify == "s" else f"wake:{reply}")
        keys = [self.stream(which), *map(self.key, ("trouble", "later", "later:data", "meta")), self.stream(target_class),
                self.key(f"reply:{reply}"), other, self.key(f"tokens:{stream}"), self.key(f"sent:{target}")]
        return Call("cancel", keys, [consumer, entry_id, target, reply, ttl_ms, notify, results, stream])

    def control(self, most=64, after="0-0"):
        return Call("control", [self.stream("control")], [most, after])

    def list(self, what, after="", which="normal"):
        if what == "later":
            return Call("list", [self.key("later"), self.key("trouble"), self.key("later:data")], [what, after])
        return Call("list", [self.stream(which), self.key("trouble")], [what, after])

    def find(self, id, cursor="", which="normal"):
        """`which`: also `later`."""
        place = self.key("later") if which == "later" else self.stream(which)
        return Call("find", [place, *map(self.key, ("trouble", "later:data"))], [id, cursor])

    def pulse(self, consumer="me", rank=2, elected_ms=3600000, found="", ended="", came="", asks="", **heartbeat):
        keys = [*map(self.key, ("meta", "workers", "paused", "later", "dead")), *map(self.stream, CLASSES),
                self.key("housekeeper"), self.key("stats")]
        return Call("pulse", keys, [consumer, rank, elected_ms, found, ended, came, asks, *(str(word) for pair in heartbeat.items() for word in pair)])

    def shed(self, cap, which="normal", consumer="me", most=100, most_bytes=100000, after="0-0", before="0-0"):
        return Call("shed", [self.stream(which), self.key("trouble")], [consumer, cap, most, most_bytes, after, before])

    def fair(self, *enough, which="normal", consumer="me", after="0-0", most=100, most_bytes=100000):
        return Call("fair", [self.stream(which)], [consumer, after, most, most_bytes, *enough])

    def sweep(self, which="normal", consumer="me", after="0-0", most=100, most_bytes=100000):
        keys = [self.stream(which), *map(self.key, ("trouble", "later", "later:data"))]
        return Call("sweep", keys, [consumer, after, most, most_bytes, PREFIX[which]])

    def requeue(self, letter):
        return Call("requeue", [self.key("dead"), *map(self.stream, CLASSES)], [letter])

    def bucket(self, requests=0, tokens=0, take=1, take_tokens=0, key="k"):
        return Call("bucket", [self.key("limit:" + key)], [requests, tokens, take, take_tokens])

    def group(self, which="normal"):
        return Call("group", [self.stream(which)], [])

    def join(self, token="token", model="model", me="me", lease_ms=3600000):
        return Call("join", [self.key("meta"), self.key(f"alive:{me}")], [1, model, token, lease_ms, "f32", f"name of {model}", "{}"])

    def renew(self, token="token", me="me", lease_ms=3600000):
        return Call("renew", [self.key(f"alive:{me}")], [token, lease_ms])

    def come_back(self, name, entry_id, which="normal"):
        """Brings a parked request back as promote does, even in a stream ahead of the clock, where promote leaves it parked."""
        keys = [self.stream(which), *map(self.key, ("later:data", "later", "trouble"))]
        return plain(self.client.eval(COME_BACK, len(keys), *keys, name, entry_id))

    # --- The state of Redis ---

    def trouble(self, name):
        return plain(self.client.hget(self.key("trouble"), name))

    def reply(self, reply_id):
        """The fields of a reply, and the members of its `info` among them."""
        return flat(self.client.hgetall(self.key(f"reply:{reply_id}")))

    def put_reply(self, reply_id, status, **info):
        """Writes a reply as it is found in Redis."""
        self.client.hset(self.key(f"reply:{reply_id}"), mapping={"status": status, "info": json.dumps(info, separators=(",", ":"))})

    def entries(self, which="normal"):
        """Entry ids and their fields, as a flat list each, as on the wire."""
        answer = self.client.eval("return redis.call('XRANGE', KEYS[1], '-', '+')", 1, self.stream(which))
        return {entry_id: fields for entry_id, fields in plain(answer)}

    def owners(self, which="normal"):
        """The holder of each pending entry."""
        pending = self.client.xpending_range(self.stream(which), "sluice", "-", "+", 10000)
        return {plain(entry["message_id"]): plain(entry["consumer"]) for entry in pending}

    def places(self, name):
        """The places of the request with this name: how often it is in its stream, whether it is parked and waits for its
        time, and the status of its reply."""
        which = next((c for c in ("high", "low") if name.startswith(c)), "normal")
        own = name.rpartition(":")[2]
        carried = 0
        for entry_id, fields in self.entries(which).items():
            lent = dict(zip(fields[::2], fields[1::2])).get("_id")
            carried += (lent or entry_id) == (name if lent else own)
        parked, waits = (int(self.client.type(self.key(suffix)) == kind and look(self.key(suffix), name) not in (None, False))
                         for suffix, kind, look in (("later:data", b"hash", self.client.hexists),
                                                    ("later", b"zset", self.client.zscore)))
        replies = [flat(self.client.hgetall(key)) for key in self.client.keys(self.key("reply:*")) if self.client.type(key) == b"hash"]
        answered = sorted(reply["status"] for reply in replies if reply.get("entry") == name)
        return {"stream": carried, "parked": parked, "waits": waits, "reply": answered}

    def dump(self):
        """The whole database, comparable; for a stream also the state of its groups."""
        return {key: value for key, *value in plain(self.client.eval(DUMP, 0))}


def refused(client, call):
    """The error in which a call ends, '' if there is none."""
    try:
        call.run(client)
    except redis.exceptions.NoPermissionError as error:
        return f"NOPERM {error}"
    except redis.ResponseError as error:
        return str(error)
    return ""


class ScriptCase(RedisCase):
    """A server, and a desk for queues that have their groups."""

    redis_options = {"aof": None}

    def setUp(self):
        super().setUp()
        self.desk = Desk(self.client).groups()
