"""One or more scenes for each script: the state of Redis, the call, and its results. The tests that apply to all scripts
(rights, types, repetition, a cut file, a full Redis, a cluster) go through all scenes."""

from dataclasses import dataclass, field
from typing import Callable
from unittest.mock import ANY

from scripts import End, Park, Tokens

LONG_AGO_MS = 1
TO_COME = 9999999999999999
LAST_ID = "18446744073709551615-18446744073709551615"


@dataclass
class Scene:
    name: str
    prepare: Callable  # (desk)
    call: Callable  # (desk) -> Call; makes no difference in Redis
    result: object
    again: object  # the answer of the same call the second time
    names: list = field(default_factory=list)  # the requests in the scene
    side: tuple = ()  # suffixes of keys whose type may be wrong: the call does its work all the same
    presence: tuple = ()  # suffixes of keys for which it only checks that they exist
    when_full: bool = True  # it runs in a full Redis
    steady: bool = True  # the second call changes nothing
    repeat: Callable = None  # (desk) -> the daemon's call after an error, where it is not the same call


def _three(desk):
    desk.groups().deliver("me", "1-1", "2-1", "3-1", "4-1")
    desk.do("SET", desk.key("sent:3-1"), "one ")


def _settle(desk):
    return desk.settle(End("1-1"), End("2-1", notify="1", reply="b"), End("3-1", notify="hits", reply="c", stream="s", tokens=1),
                       End("4-1", "error", notify="1"))


def _three_staged(desk):
    _three(desk)
    desk.put_reply("1-1", "queued", entry="1-1", old="x")
    desk.put_reply("b", "done", entry="9-9")
    for number in (1, 2, 3):
        desk.stage(number)


def _settle_staged(desk):
    return desk.settle(End("1-1", staged=1), End("2-1", staged=2, notify="1", reply="b"), End("3-1", staged=3), End("4-1"))


def _three_plain(desk):
    _three(desk)
    desk.put_reply("2-1", "queued", entry="2-1", old="x")
    desk.client.hset(desk.key("trouble"), mapping={"3-1": "0 1 3-1 you", "9-1": "0 1 9-1 you"})
    for number in (1, 2, 3):
        desk.stage(number)


def _settle_plain(desk):
    return desk.settle(*(End(f"{number}-1", staged=number, plain=True) for number in (1, 2, 3)), End("4-1", notify="1"))


def _retried(desk):
    """Entry 7-1 carries the name 1-1, and a worker died on it."""
    desk.groups().add("7-1", _id="1-1", _attempt="2", _first_at="1", id="mine", text="hello")
    desk.read("me")
    desk.do("HSET", desk.key("trouble"), "1-1", "1 1 7-1 dead")


def _parked(desk):
    desk.groups().deliver("me", "1-1", "2-1")
    desk.deliver("me", "3-1", which="low")
    desk.run(desk.defer(Park("1-1"), Park("2-1", due_at_ms=4102444800000)))
    desk.run(desk.defer(Park("3-1"), which="low"))


def _held_by_the_dead(desk):
    desk.groups().deliver("dead", "1-1", "2-1", "3-1")
    desk.add("4-1", text="x" * 5000)
    desk.read("dead")
    desk.do("XDEL", desk.stream(), "2-1")
    desk.do("HSET", desk.key("trouble"), "3-1", "0 1 3-1 dead")
    desk.deliver("slow", "5-1")
    desk.do("SET", desk.key("alive:slow"), "token")
    desk.deliver("released", "6-1")


def _leaving(desk):
    desk.groups().deliver("me", "1-1", "2-1")
    desk.do("SET", desk.key("alive:me"), "token")
    desk.do("HSET", desk.key("workers"), "me", "1 state running", "command:me", "quiet", "you", "1 state running")
    desk.do("HSET", desk.key("trouble"), "1-1", "0 2 1-1 dead,me")


def _cancelled(desk, place):
    desk.groups()
    desk.add("1-1", prompt="hello", id="mine", notify="1", ttl="10000", meta="m", stream="s")
    desk.do("SET", desk.key("sent:1-1"), "one ")
    if place != "unread":
        desk.read("other")
    if place == "parked":
        desk.run(desk.defer(Park("1-1"), consumer="other"))
    if place == "retried":
        desk.run(desk.defer(Park("1-1"), consumer="other"))
        desk.run(desk.promote())
    desk.add("9-1", "high", cancel="1-1")
    desk.read("me", "high")


def _ahead(desk):
    """Entries with ids in the future: unread, held, charged, on its way back, a cancel; and a queue whose ids are used up."""
    desk.groups().deliver("me", "1-1")
    desk.deliver("me", f"{TO_COME}-1", f"{TO_COME}-2", f"{TO_COME}-3")
    desk.run(desk.charge(f"{TO_COME}-1"))
    desk.run(desk.defer(Park(f"{TO_COME}-2", attempt=3)))
    desk.come_back(f"{TO_COME}-2", f"{TO_COME}-7")
    desk.add(f"{TO_COME}-8", text="unread")
    desk.add(LAST_ID, "low", cancel="1-1")


def _cancel(name, place):
    return Scene(name, lambda desk: _cancelled(desk, place),
                 lambda desk: desk.cancel("9-1", "1-1", reply="mine", notify="1", stream="s"), [1], [2], ["1-1"],
                 ("wake:mine", "reply:mine", "later", "tokens:s", "sent:1-1"), ("requests",) if place == "parked" else ())


def _crowd(desk):
    desk.groups()
    for i in range(1, 7):
        desk.add(f"{i}-1", text="hello", tenant="big" if i < 5 else "small")
    desk.read("other", count=1)


def _orphans(desk):
    desk.groups().deliver("gone", "1-1", "2-1")
    desk.deliver("me", "3-1")
    desk.do("XGROUP", "DELCONSUMER", desk.stream(), "sluice", "gone")
    desk.deliver("gone", "4-1")
    desk.run(desk.defer(Park("4-1", due_at_ms=4102444800000), consumer="gone"))
    desk.do("ZREM", desk.key("later"), "4-1")
    desk.do("HSET", desk.key("workers"), "old", f"{LONG_AGO_MS} state running", "command:nobody", "stop")


def _letter(desk):
    desk.groups().do("XADD", desk.key("dead"), "5-5", "_entry", "low:1-1", "_code", "internal", "id", "mine", "text", "hello",
                     "delay", "5")


SCENES = [
    Scene("settle", _three, _settle, [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0], ["1-1", "2-1", "3-1", "4-1"],
          ("trouble", "dead", "results:hits", "wake:b", "reply:1-1", "reply:b", "reply:c", "reply:4-1", "wake:4-1", "tokens:s", "sent:3-1")),
    Scene("settle_staged", _three_staged, _settle_staged, [1, 2, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0], ["1-1", "3-1", "4-1"],
          ("trouble", "dead", "wake:b", "reply:1-1", "reply:3-1", "reply:4-1"), ("reply:b",),
          repeat=lambda desk: desk.settle(End("1-1"), End("2-1", notify="1", reply="b"), End("3-1"), End("4-1"))),
    Scene("settle_plain", _three_plain, _settle_plain, [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0], ["1-1", "2-1", "3-1", "4-1"],
          ("trouble", "dead", "wake:4-1", "reply:1-1", "reply:2-1", "reply:3-1", "reply:4-1"),
          repeat=lambda desk: desk.settle(*(End(f"{number}-1") for number in (1, 2, 3)), End("4-1", notify="1"))),
    Scene("settle_dead", _retried, lambda desk: desk.settle(End("7-1", "dead", "1-1", claims=True, reply="mine")),
          [1, 0, 0], [0, 0, 0], ["1-1"], ("trouble", "dead", "reply:mine")),
    Scene("settle_gone", lambda desk: (_three(desk), desk.do("XDEL", desk.stream(), "1-1")),
          lambda desk: desk.settle(End("1-1", "gone"), consumer="you"), [1, 0, 0], [0, 0, 0], [], ("trouble", "reply:1-1")),
    Scene("tokens", _three, lambda desk: desk.tokens(Tokens("1-1", "s", 0, (7,), "a"), Tokens("3-1", "s", 1, (8, 9), "b")), [1, 3],
          [1, 3], ["1-1", "3-1"], ("tokens:s", "sent:1-1", "sent:3-1")),
    Scene("defer", _retried, lambda desk: desk.defer(Park("7-1", "1-1", claims=True, attempt=3, delay_ms=9000000)),
          [1], [0], ["1-1"], ("trouble", "meta")),
    Scene("promote", _parked, lambda desk: desk.promote(), [2, ANY, 0], [0, ANY, 0], ["1-1", "2-1", "low:3-1"],
          ("trouble",), ("requests", "requests:low")),
    Scene("mend", _ahead, lambda desk: desk.mend(), [5, 2, 0, 0], [0, 0, 0, 0],
          ["1-1", f"{TO_COME}-1", f"{TO_COME}-2", f"{TO_COME}-3", f"{TO_COME}-8", f"low:{LAST_ID}"],
          ("trouble", "meta", "requests:high"), ("requests", "requests:low")),
    Scene("charge", _retried, lambda desk: desk.charge(("7-1", "1-1"), attempt=2), [2], [2], ["1-1"]),
    Scene("reclaim", _held_by_the_dead, lambda desk: desk.reclaim("released", "dead", "slow", most_bytes=1000),
          [[["6-1", 0, 0, ["text", "hello"]], ["1-1", 1, 0, ["text", "hello"]], ["3-1", 1, 1, ["text", "hello"]]],
           ["2-1"], ["4-1"], 0, ["dead"]], [[], ["2-1"], [], 0, ["dead"]], ["1-1", "3-1", "4-1", "5-1", "6-1"], ("trouble",),
          ("alive:released", "alive:dead", "alive:slow")),
    Scene("address", _retried, lambda desk: desk.address("7-1"), [[["7-1", 3, 0, ["_id", "1-1", "id", "mine"]]], [], [], 0],
          [[["7-1", 3, 0, ["_id", "1-1", "id", "mine"]]], [], [], 0], ["1-1"], ("trouble",)),
    Scene("release", _leaving, lambda desk: desk.release("1-1", last=2), [2, 1, 0], [0, 0, 0], ["1-1", "2-1"],
          ("trouble", "workers", "housekeeper")),
    _cancel("cancel_unread", "unread"),
    _cancel("cancel_held", "held"),
    _cancel("cancel_parked", "parked"),
    _cancel("cancel_retried", "retried"),
    Scene("cancel_unknown", lambda desk: _cancelled(desk, "held"), lambda desk: desk.cancel("9-1", "8-8"), [0], [2], ["1-1"],
          ("wake:8-8", "reply:8-8", "later")),
    Scene("cancel_control", lambda desk: (_three(desk), desk.add("9-1", "control", cancel="1-1")),
          lambda desk: desk.cancel("9-1", "1-1", which="control"), [1], [2], ["1-1", "2-1"],
          ("wake:1-1", "later", "trouble")),
    Scene("control", lambda desk: (desk.add("1-1", "control", cancel="8-8"), desk.add("2-1", "control", text="x")),
          lambda desk: desk.control(), ["1-1", "8-8", "2-1", ""], ["1-1", "8-8", "2-1", ""]),
    Scene("list", _retried, lambda desk: desk.list("pending"), ["", ["1-1", "me", ANY, 1, ANY, "id", "mine", "text", "hello"]],
          ["", ["1-1", "me", ANY, 1, ANY, "id", "mine", "text", "hello"]], ["1-1"], ("trouble",)),
    Scene("find", _retried, lambda desk: desk.find("mine"), [0, "7-1", 1, "1-1"], [0, "7-1", 1, "1-1"], ["1-1"]),
    Scene("find_later", _parked, lambda desk: desk.find("mine", which="later"), [0, ANY, 3], [0, ANY, 3], ["1-1", "2-1", "low:3-1"],
          ("trouble",)),
    Scene("pulse", lambda desk: (_crowd(desk), desk.do("HSET", desk.key("meta"), "cap_normal", "3"),
                                 desk.do("HSET", desk.key("workers"), "command:me", "drain", "gone", "1 state running lease 300")),
          lambda desk: desk.pulse(ended="7 normal:done 3", state="running", rows_per_s=2, counted=7), [ANY, 0, "drain", 0, 5, 0, 0, 3, 0, 0, 1, "", 2, "", ""],
          [ANY, 0, "drain", 0, 5, 0, 0, 3, 0, 0, 1, "", 1, "", ""], [],
          ("meta", "workers", "later", "dead", "requests:high", "requests", "requests:low", "housekeeper", "stats"), ("paused",), steady=False),
    Scene("shed", _crowd, lambda desk: desk.shed(3), [[["6-1", 0, 0, ["text", "hello", "tenant", "small"]],
          ["5-1", 0, 0, ["text", "hello", "tenant", "small"]]], [], [], 0, "6-1", "5-1"],
          [[], [], [], 0, "6-1", "0-0"], [f"{i}-1" for i in range(1, 7)], ("trouble",)),
    Scene("fair", _crowd, lambda desk: desk.fair("big"), [[["5-1", 0, 0, ["text", "hello", "tenant", "small"]],
          ["6-1", 0, 0, ["text", "hello", "tenant", "small"]]], [], [], 0, "6-1"], [[], [], [], 0, "6-1"],
          [f"{i}-1" for i in range(1, 7)], when_full=False),
    Scene("sweep", _orphans, lambda desk: desk.sweep(), [[["1-1", 0, 0, ["text", "hello"]], ["2-1", 0, 0, ["text", "hello"]]],
          [], [], 0, "3-1"], [[], [], [], 0, "3-1"], ["1-1", "2-1", "3-1", "4-1"],
          ("trouble", "later", "later:data")),
    Scene("requeue", _letter, lambda desk: desk.requeue("5-5"), [1, ANY], [0], [], when_full=False),
    Scene("group", lambda desk: None, lambda desk: desk.group(), 1, 0, []),
    Scene("bucket", lambda desk: None, lambda desk: desk.bucket(1, 5), 0, ANY, [], steady=False),
    Scene("join", lambda desk: None, lambda desk: desk.join(), [1, ""], [1, ""], [], steady=False),
    Scene("renew", lambda desk: desk.run(desk.join()), lambda desk: desk.renew(lease_ms=7200000), 1, 1, [], steady=False),
]
