"""The real course of events in Redis, in order: its own append-only file, read back.

The final state shows that a reply is there. It cannot show that it was written twice, or that an entry was removed before its
reply was written. The append-only file can: it holds every write with its values, the writes of one script between MULTI and
EXEC, and it survives a kill -9 of Redis. Reads that deliver (XREADGROUP) appear in it as XCLAIM; Valkey 9 adds XGROUP SETID."""

import glob
import os
from itertools import takewhile

from producer import opened


def _commands(path):
    """Every complete command of one file, as lists of bytes; a torn tail after a kill is what Redis drops, too."""
    with open(path, "rb") as file:
        data = file.read()
    position = 0
    while position < len(data):
        end = data.find(b"\r\n", position)
        if end < 0:
            return
        line = data[position:end]
        if line.startswith(b"#"):  # an annotation
            position = end + 2
            continue
        assert line.startswith(b"*"), f"{path}: not a command at byte {position}: {line[:40]!r}"
        words, at = [], end + 2
        for _ in range(int(line[1:])):
            end = data.find(b"\r\n", at)
            if end < 0:
                return
            length = int(data[at + 1:end])
            if end + 2 + length + 2 > len(data):
                return
            words.append(data[end + 2:end + 2 + length])
            at = end + 2 + length + 2
        yield words
        position = at


def _files(directory):
    """The append-only files in the order of the manifest: the base, then the increments."""
    folder = os.path.join(directory, "appendonlydir")
    manifests = glob.glob(os.path.join(folder, "*.manifest"))
    assert len(manifests) == 1, f"no manifest in {folder}"
    entries = []
    with open(manifests[0], encoding="utf-8") as file:
        for line in file:
            words = line.split()
            entries.append((words[5] != "b", int(words[3]), os.path.join(folder, words[1])))
    return [path for _, _, path in sorted(entries)]


def transactions(directory):
    """Lists of commands that took effect together. A MULTI whose EXEC never came did not take effect."""
    for path in _files(directory):
        together = None
        for words in _commands(path):
            name = words[0].upper()
            if name == b"MULTI":
                assert together is None, f"{path}: a transaction that was torn by a crash has not been cut off"
                together = []
            elif name == b"EXEC":
                yield together
                together = None
            elif name == b"SELECT":
                continue
            elif together is not None:
                together.append(words)
            else:
                yield [words]


def place(name):
    """The stream and the entry id of a request's name."""
    level, _, entry = name.rpartition(":")
    return ("requests:" + level if level else "requests"), entry


def name_of(stream, entry):
    """The request's name of an entry: the inverse of place()."""
    return (stream.partition(":")[2] + ":" if ":" in stream else "") + entry


def _numbers(entry):
    return tuple(map(int, entry.split("-")))


def trims(words):
    """The id that an XTRIM of a stream by ids keeps, and all after it, as two numbers; None for other commands."""
    by_ids = words[0].upper() == b"XTRIM" and words[2].upper() == b"MINID"
    return _numbers(words[-1].decode()) if by_ids else None


def removes(words, entry):
    """Whether a command may be the one that removed an entry, of the stream that it names."""
    kept = trims(words)
    return kept > _numbers(entry) if kept else words[0].upper() == b"XDEL" and entry.encode() in words[2:]


class History:
    """The life of one queue. Times are positions in the history."""

    def __init__(self, directory, queue):
        self.prefix = f"sluice:{{{queue}}}:".encode()
        self.added = {}        # (stream, entry id) -> fields
        self.deliveries = {}   # (stream, entry id) -> [consumer, …]
        self.removed = {}      # (stream, entry id) -> [when, …] of XDEL and XTRIM
        self.present = {}      # stream -> entries in it, as keys in their order
        self.acked = {}        # (stream, entry id) -> [when, …] of XACK
        self.replies = {}      # id -> [(when, fields as of opened()), …]: every terminal write
        self.charges = {}      # name -> [when, …]: every write to `trouble` about it
        self.steps = []        # [when] -> commands that took effect together
        self.staged = {}       # stage key -> fields of a large reply, in the same transaction
        self.submissions = {}  # `id` -> (stream, entry id) that producers added under it
        self.retries = {}      # original name -> (stream, entry id) under which it came back
        self.robbed = []       # (stream, entry id, from, to): taken by a living worker from one whose lease had not ended
        self.alive = set()     # workers with a lease, now
        self.read_until = {}   # stream -> the last id that the group has read
        for when, together in enumerate(transactions(directory)):
            self.steps.append(together)
            for words in together:
                self._take(when, words)

    def _take(self, when, words):
        name = words[0].upper()
        if name in (b"FLUSHALL", b"FLUSHDB"):
            self.alive.clear()
            self.present.clear()
        if name == b"XGROUP" and words[2].startswith(self.prefix):
            stream = words[2][len(self.prefix):].decode()
            if words[1].upper() in (b"CREATE", b"SETID"):
                self.read_until[stream] = words[4]
            elif words[1].upper() == b"DESTROY":
                self.read_until.pop(stream, None)
        if len(words) < 2 or not words[1].startswith(self.prefix):
            return
        key = words[1][len(self.prefix):].decode("utf-8", "replace")
        if key.startswith("alive:"):
            self._take_lease(name, [word[len(self.prefix) + len("alive:"):].decode("utf-8", "backslashreplace") for word in words[1:]])
        if name == b"XADD" and key.startswith("requests"):
            at = next(i for i in range(2, len(words)) if b"-" in words[i] and words[i].replace(b"-", b"").isdigit())
            entry = (key, words[at].decode())
            fields = self.added[entry] = dict(zip(words[at + 1::2], words[at + 2::2]))
            self.present.setdefault(key, {})[entry[1]] = True
            if b"_id" in fields:
                self.retries.setdefault(fields[b"_id"].decode("utf-8", "replace"), []).append(entry)
            elif b"id" in fields:
                self.submissions.setdefault(fields[b"id"].decode("utf-8", "replace"), []).append(entry)
        elif name == b"XCLAIM" and key.startswith("requests"):
            self._take_delivery(key, words)
        elif name == b"XDEL" and key.startswith("requests"):
            self._take_removal(when, key, [word.decode() for word in words[2:]])
        elif name == b"XTRIM" and key.startswith("requests") and trims(words):
            self._take_removal(when, key, list(takewhile(lambda entry: removes(words, entry), self.present.get(key, {}))))
        elif name in (b"DEL", b"UNLINK", b"RENAME") and key.startswith("requests"):
            moved = self.present.pop(key, {})
            if name == b"RENAME":
                self.present[words[2][len(self.prefix):].decode("utf-8", "replace")] = moved
        elif name == b"XACK" and key.startswith("requests"):
            for word in words[3:]:
                self.acked.setdefault((key, word.decode()), []).append(when)
        elif name == b"HSET" and key.startswith("stage:"):
            self.staged[words[1]] = dict(zip(words[2::2], words[3::2]))
        elif name == b"RENAME" and key.startswith("stage:"):
            self.staged[words[2]] = self.staged.pop(words[1], {})  # settle adds the rest in the same step
        elif name in (b"HSET", b"HMSET") and key.startswith("reply:"):
            fields = {**self.staged.pop(words[1], {}), **dict(zip(words[2::2], words[3::2]))}
            if fields.get(b"status") in (b"done", b"error", b"cancelled"):
                self.replies.setdefault(key[len("reply:"):], []).append((when, opened(fields)))
        elif name in (b"HINCRBY", b"HSET") and key == "trouble":
            self.charges.setdefault(words[2].decode("utf-8", "replace"), []).append(when)

    def _take_removal(self, when, stream, entries):
        for entry in entries:
            self.present.get(stream, {}).pop(entry, None)
            self.removed.setdefault((stream, entry), []).append(when)

    def _take_lease(self, name, workers):
        """The end of a lease is a DEL in the file, because Redis writes one for every key that expires."""
        if name == b"SET":
            self.alive.add(workers[0])
        elif name in (b"DEL", b"UNLINK"):
            self.alive.difference_update(workers)

    def _take_delivery(self, stream, words):
        """If LASTID says that the group had read the entry already, a script has claimed it for another worker. (An entry
        that a script had claimed before it was read is read again when its turn comes.)"""
        entry, to, until = (stream, words[5].decode()), words[3].decode("utf-8", "backslashreplace"), words[-1]
        holders = self.deliveries.setdefault(entry, [])
        claimed = self.read_until.get(stream) == until
        if claimed and holders and holders[-1] != to and {holders[-1], to} <= self.alive and entry not in self.removed:
            self.robbed.append((*entry, holders[-1], to))
        self.read_until[stream] = until
        holders.append(to)
