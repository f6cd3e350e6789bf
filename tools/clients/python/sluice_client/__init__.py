"""A client for Sluice: texts become vectors, scores or labels, over Redis.

`Client` takes a `redis.Redis`, `AsyncClient` a `redis.asyncio.Redis`; both have the same methods. A request that fails raises
`SluiceError`. One that is not answered in time is cancelled, and raises `TimeoutError`. While Redis is away calls are repeated
until their time is up: each request has an id, so a repeated one still has one reply.

docs/protocol.md of Sluice is the contract. Its fields are given by name: `Fields` to each method, `AllFields` to `enqueue`.
Any other name is a TypeError, unless it begins with `x-`."""

from __future__ import annotations

import array
import asyncio
import contextlib
import dataclasses
import difflib
import functools
import json
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

import redis.asyncio

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AsyncClient", "Client", "Reply", "Request", "SluiceError"]

Word = Union[str, int, float, bytes]
Vector = array.array  # 32-bit floats
_Parts = Sequence[tuple[int, Union[str, Sequence[str]]]]

_USABLE_ID = re.compile(r"(?!(high:|low:)?\d{13,}-\d+$)[ -~]{1,128}")
_STREAMS = {"high": ("requests:high", "high:"), "normal": ("requests", ""), "low": ("requests:low", "low:")}
_LOST = (redis.ConnectionError, redis.TimeoutError)
_PAUSE_S = 0.1  # before a command is repeated
_LOOK_S = 2  # between two looks at a reply, below the socket timeout of redis-py
_SILENT_MS = 10000  # a queue of which nothing has been published for so long has no worker

_Flag = Union[bool, Literal[0, 1]]
# Fields of any method. `priority` is the stream.
Fields = TypedDict("Fields", {
    "priority": Literal["high", "normal", "low"], "prompt": str, "model": str, "into": str, "into_field": str, "meta": str,
    "tenant": str, "traceparent": str, "tracestate": str, "ttl": int, "max_attempts": int, "delay": int, "dims": int,
    "normalize": _Flag, "truncate": _Flag, "raw": _Flag}, total=False)  # fmt: skip


class OneFields(Fields, total=False):
    """Fields of a method that sends one request."""

    id: str


# Fields of `enqueue` alone. Waiting needs the default `notify`, and `Reply.vector` the default `encoding`.
_OwnFields = TypedDict("_OwnFields", {
    "encoding": Literal["json", "f32", "f16", "base64", "int8", "ubinary"], "task": Literal["embed", "rerank", "classify"],
    "query": str, "top_n": int, "notify": str, "expires_in": int}, total=False)  # fmt: skip


class AllFields(OneFields, _OwnFields, total=False):
    """Fields of `enqueue`."""


class SluiceError(Exception):
    """A reply that is not a result; `cancelled` is one of the codes."""

    def __init__(self, fields: Mapping[str, bytes]) -> None:
        info = json.loads(fields["info"])
        self.code = fields.get("code", fields["status"]).decode()
        super().__init__(fields.get("message", fields["status"]).decode())
        self.retryable: bool = info.get("retryable", False)
        self.retry_after: float = info.get("retry_after_ms", 0) / 1000  # seconds, for queue_full
        self.index: int | None = info.get("index")  # the text at fault, if there are several


@dataclasses.dataclass(frozen=True)
class Request:
    """`id`: under which the reply is. `name`: the queue's name for the request, for `cancel`."""

    id: str
    name: str


@dataclasses.dataclass(frozen=True)
class Reply:
    """A result, with all fields of the reply as they are in Redis. `info` has the rest: model, tokens, times, ..."""

    fields: Mapping[str, bytes]

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        return dict(json.loads(self.fields["info"]))

    def __repr__(self) -> str:
        short = {name: value if len(value) <= 64 else f"{len(value)} bytes" for name, value in self.fields.items()}
        return f"Reply({ {**short, 'info': self.info} })"

    @property
    def vectors(self) -> list[Vector[float]]:
        if self.info["encoding"] != "f32":
            raise ValueError("not in f32 but in " + self.info["encoding"])
        floats, dim = array.array("f", self.fields["embedding"]), self.info["dim"]
        if sys.byteorder == "big":
            floats.byteswap()
        return [floats[at : at + dim] for at in range(0, len(floats), dim)]

    @property
    def vector(self) -> Vector[float]:
        return self.vectors[0]

    @property
    def ranking(self) -> list[tuple[int, float]]:
        """Returns (number of the document, score), the best first."""
        return [(each["index"], each["score"]) for each in json.loads(self.fields["top"])]

    @property
    def labels(self) -> list[tuple[str, float]]:
        """Returns (label, score), the best first."""
        return [(each["label"], each["score"]) for each in json.loads(self.fields["labels"])]


def _age(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.rpartition(":")[2].split("-")))


def _expect(kind: Any, value: Any, what: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{what}, not {type(value).__name__}")
    return value


def _text(text: Any) -> str:
    return str(_expect(str, text, "one text is a str (embed_many takes several)"))


def _texts(texts: Any) -> list[str]:
    return [_text(text) for text in _expect(list if isinstance(texts, (str, bytes)) else Iterable, texts, "several texts are a list of str")]


def _known(given: Mapping[str, Any], fields: Any, **own: Any) -> dict[str, Any]:
    """The given fields, which must be of these, and our own."""
    for name in given:
        if name not in fields.__annotations__ and not name.startswith("x-"):
            nearest = difflib.get_close_matches(name, [*fields.__annotations__, "timeout", "best"], 1)
            raise TypeError(f"no field {name} here: " + (f"do you mean {nearest[0]}?" if nearest else "enqueue takes all of docs/protocol.md"))
    return {**given, **own}


def _split(texts: list[str], limits: Sequence[bytes | None]) -> _Parts:
    """Splits the texts into parts that a request may carry, each with the number of its first text."""
    most, most_bytes = (int(limit or default) for limit, default in zip(limits, (256, 1048576)))
    parts: list[tuple[int, Sequence[str]]] = []
    start, size = 0, 0
    for at, text in enumerate(texts):
        length = len(text.encode("utf-8", "surrogatepass"))
        if at > start and (at - start == most or size + length > most_bytes):
            parts.append((start, texts[start:at]))
            start, size = at, 0
        size += length
    return [*parts, (start, texts[start:])] if texts else []


def _left(error: BaseException, parts: _Parts, requests: Sequence[Request], answered: int) -> Sequence[Request]:
    """The requests without a reply. Changes an error's index to that among all texts."""
    if isinstance(error, SluiceError):
        error.index = None if error.index is None else error.index + parts[answered][0]
        answered += 1
    return requests[answered:]


def _merge(parts: Sequence[tuple[int, Reply]], best: int | None) -> list[tuple[int, float]]:
    scores = [(start + index, score) for start, reply in parts for index, score in reply.ranking]
    return sorted(scores, key=lambda each: (-each[1], each[0]))[:best]


def _ended(streams: Any) -> Iterator[tuple[str, str]]:
    """Yields (entry of the results stream, id of the request) from the answer of XREAD in RESP2 or RESP3."""
    for _, entries in streams.items() if isinstance(streams, dict) else streams or []:
        for entry, fields in entries:
            yield entry.decode(), fields[b"id"].decode()


class _Queue:
    def __init__(self, connection: Any, queue: str) -> None:
        if not re.fullmatch(r"[a-z0-9_.-]{1,64}", queue):
            raise ValueError(f"a queue's name is 1 to 64 of a-z 0-9 _ . -, not {queue!r}")
        if connection.get_encoder().decode_responses:
            raise ValueError("vectors are bytes: the connection must not have decode_responses")
        self._connection, self._queue, self._prefix = connection, queue, "sluice:{" + queue + "}:"
        self._meta: list[Word] = ["HMGET", self._prefix + "meta", "max_inputs", "max_text_bytes", "published_at"]

    def _add(self, text: str | Sequence[str], notify: str, fields: Mapping[str, Any]) -> tuple[str, str, list[Word]]:
        """The id of a request, the class in its name, and the command that enqueues it."""
        body = {"id": uuid.uuid4().hex, "notify": notify, **_known(fields, AllFields)}
        body.update({"text": text} if isinstance(text, str) else {"inputs": json.dumps(_texts(text))})
        for name, value in body.items():
            body[name] = int(value) if isinstance(value, bool) else _expect((str, int, float, bytes), value, f"{name} is a str or a number")
        if not _USABLE_ID.fullmatch(body["id"]):
            raise ValueError(f"id {body['id']!r} is not 1 to 128 printable ASCII characters, or looks like a name of Redis")
        if body.get("task", "embed") == "embed":
            body.setdefault("encoding", "f32")
        if (priority := body.pop("priority", "normal")) not in _STREAMS:
            raise ValueError(f"priority is high, normal or low, not {priority!r}")
        stream, prefix = _STREAMS[priority]
        return body["id"], prefix, ["XADD", self._prefix + stream, "*", *(word for pair in body.items() for word in pair)]

    def _get(self, id: str) -> list[Word]:
        return ["HGETALL", f"{self._prefix}reply:{_expect(str, id, 'read takes an id')}"]

    def _cancel(self, request: Request) -> list[Word]:
        return ["XADD", self._prefix + "control", "*", "cancel", _expect(Request, request, "cancel takes what enqueue returned").name]

    def _late(self, request: Request, waited: float, meta: Sequence[bytes | None]) -> TimeoutError:
        """All times are Redis' own. They tell whether a worker lives."""
        silent_ms = _age(request.name)[0] + 1000 * waited - int(meta[2] or 0)
        why = "" if silent_ms <= _SILENT_MS else f"has had no worker for {silent_ms / 1000:.0f} s" if meta[2] else "has never had a worker"
        return TimeoutError(f"no reply to {request.id} in time" + (why and f": queue {self._queue} {why}"))

    def _reply(self, answer: Mapping[bytes, bytes], request: Request | None = None) -> Reply | None:
        """The reply; None while there is none, or only that of an older request with the same id."""
        fields = {key.decode(): value for key, value in answer.items()}
        if "status" not in fields or (request and _age(json.loads(fields["info"])["entry"]) < _age(request.name)):
            return None
        if fields["status"] != b"done":
            raise SluiceError(fields)
        return Reply(fields)


class Client(_Queue):
    """A client in which each waiting call holds a connection of the pool, as blocking commands do."""

    def __init__(self, connection: redis.Redis, queue: str = "default") -> None:
        super().__init__(connection, queue)

    def _call(self, ends: float, command: list[Word]) -> Any:
        """Repeats the command until `ends` while the connection is lost."""
        while True:
            try:
                return self._connection.execute_command(*command)
            except _LOST as lost:
                if isinstance(lost, redis.AuthenticationError) or time.monotonic() >= ends:
                    raise
            time.sleep(_PAUSE_S)

    def enqueue(self, text: str | Sequence[str], *, timeout: float = 5, **fields: Unpack[AllFields]) -> Request:
        """Sends a request without waiting for its reply. `timeout`: for how many seconds it is tried while Redis is
        away. A request that has not begun after `expires_in` ms ends as `expired`."""
        id, prefix, command = self._add(text, "1", fields)
        return Request(id, prefix + self._call(time.monotonic() + timeout, command).decode())

    def read(self, id: str) -> Reply | None:
        """Returns the reply, or None while there is none."""
        return self._reply(self._call(0, self._get(id)))

    def wait(self, request: Request, timeout: float = 30) -> Reply:
        ends, id = time.monotonic() + timeout, _expect(Request, request, "wait takes what enqueue returned").id
        while True:
            if reply := self._reply(self._call(ends, self._get(id)), request):
                return reply
            if (left := ends - time.monotonic()) <= 0:
                raise self._late(request, timeout, self._call(0, self._meta))
            self._call(ends, ["BLPOP", f"{self._prefix}wake:{id}", f"{min(_LOOK_S, max(0.1, left)):.3f}"])

    def cancel(self, request: Request) -> None:
        self._call(0, self._cancel(request))

    def _ask(self, parts: _Parts, timeout: float, how: Mapping[str, Any]) -> list[tuple[int, Reply]]:
        ends, requests, replies = time.monotonic() + timeout, [], []
        try:
            for _, part in parts:
                requests.append(self.enqueue(part, timeout=max(0, ends - time.monotonic()), expires_in=max(1, int(1000 * timeout)), **how))
            for (start, _), request in zip(parts, requests):
                replies.append((start, self.wait(request, max(0, ends - time.monotonic()))))
            return replies
        except BaseException as error:
            for request in _left(error, parts, requests, len(replies)):
                with contextlib.suppress(redis.RedisError):
                    self.cancel(request)
            raise

    def embed(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> Vector[float]:
        return self._ask([(0, _text(text))], timeout, _known(how, OneFields))[0][1].vector

    def embed_many(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> list[Vector[float]]:
        """Returns the vectors in the order of the texts, with as few requests as the queue's limits allow."""
        parts = _split(_texts(texts), self._call(time.monotonic() + timeout, self._meta))
        return [vector for _, reply in self._ask(parts, timeout, _known(how, Fields)) for vector in reply.vectors]

    def embed_each(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> Iterator[tuple[int, Vector[float] | SluiceError]]:
        """Yields (number of the text, vector or error) in the order in which they end."""
        ends, stream, last = time.monotonic() + timeout, uuid.uuid4().hex, "0"
        fields = _known(how, Fields, notify="stream:" + stream, expires_in=max(1, int(1000 * timeout)))
        asked = [self.enqueue(text, timeout=max(0, ends - time.monotonic()), **fields) for text in _texts(texts)]
        numbers = {request.id: number for number, request in enumerate(asked)}
        while numbers and time.monotonic() < ends:
            found = list(_ended(self._call(ends, ["XREAD", "COUNT", 1000, "BLOCK", 1000, "STREAMS", f"{self._prefix}results:{stream}", last])))
            last = found[-1][0] if found else last
            for id in [id for _, id in found] or list(numbers)[:100]:  # the stream may be lost with its server
                try:
                    if id in numbers and (reply := self._reply(self._call(ends, self._get(id)))):
                        yield numbers.pop(id), reply.vector
                except SluiceError as error:
                    yield numbers.pop(id), error
        for number in numbers.values():
            self.cancel(asked[number])
        if numbers:
            raise self._late(asked[next(iter(numbers.values()))], timeout, self._call(0, self._meta))

    def rerank(self, query: str, documents: Sequence[str], *, best: int | None = None, timeout: float = 30, **how: Unpack[Fields]) -> list[tuple[int, float]]:
        """Returns (number of the document, score), the best first."""
        parts = _split(_texts(documents), self._call(time.monotonic() + timeout, self._meta))
        fields = _known(how, Fields, task="rerank", query=_text(query), top_n=best or max(1, len(documents)))
        return _merge(self._ask(parts, timeout, fields), best)

    def classify(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> list[tuple[str, float]]:
        """Returns (label, score), the best first."""
        return self._ask([(0, _text(text))], timeout, _known(how, OneFields, task="classify"))[0][1].labels


class AsyncClient(_Queue):
    """A client with two connections, however many calls wait: commands take turns on one, the other waits for ends of
    requests."""

    def __init__(self, connection: redis.asyncio.Redis, queue: str = "default") -> None:
        super().__init__(connection, queue)
        self._turn = asyncio.Lock()
        self._results, self._last = uuid.uuid4().hex, "0"
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._listener: asyncio.Task[None] | None = None

    async def _send(self, command: list[Word]) -> Any:
        async with self._turn:
            return await self._connection.execute_command(*command)

    async def _call(self, ends: float, command: list[Word]) -> Any:
        """Repeats the command until `ends` while the connection is lost. A cancelled task leaves no half-read
        answer."""
        while True:
            try:
                return await asyncio.shield(self._send(command))
            except _LOST as lost:
                if isinstance(lost, redis.AuthenticationError) or time.monotonic() >= ends:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _listen(self) -> None:
        """Wakes the calls whose requests have ended; returns when no call waits."""
        command = ["XREAD", "COUNT", 1000, "BLOCK", 1000, "STREAMS", f"{self._prefix}results:{self._results}"]
        while self._waiting:
            try:
                streams = await self._connection.execute_command(*command, self._last)
            except redis.RedisError:
                await asyncio.sleep(_PAUSE_S)
                continue
            for self._last, id in _ended(streams):
                if id in self._waiting:
                    self._waiting.pop(id).set_result(None)

    async def enqueue(self, text: str | Sequence[str], *, timeout: float = 5, **fields: Unpack[AllFields]) -> Request:
        """Sends a request without waiting for its reply. `timeout`: for how many seconds it is tried while Redis is
        away. A request that has not begun after `expires_in` ms ends as `expired`."""
        id, prefix, command = self._add(text, "stream:" + self._results, fields)
        return Request(id, prefix + (await self._call(time.monotonic() + timeout, command)).decode())

    async def read(self, id: str) -> Reply | None:
        """Returns the reply, or None while there is none."""
        return self._reply(await self._call(0, self._get(id)))

    async def wait(self, request: Request, timeout: float = 30) -> Reply:
        ends, id = time.monotonic() + timeout, _expect(Request, request, "wait takes what enqueue returned").id
        try:
            while True:
                ended = self._waiting.setdefault(id, asyncio.get_running_loop().create_future())
                if not self._listener or self._listener.done():
                    self._listener = asyncio.ensure_future(self._listen())
                if reply := self._reply(await self._call(ends, self._get(id)), request):
                    return reply
                if (left := ends - time.monotonic()) <= 0:
                    raise self._late(request, timeout, await self._call(0, self._meta))
                await asyncio.wait([ended], timeout=min(_LOOK_S, left))
        finally:
            self._waiting.pop(id, None)

    async def cancel(self, request: Request) -> None:
        await self._call(0, self._cancel(request))

    async def _ask(self, parts: _Parts, timeout: float, how: Mapping[str, Any]) -> list[tuple[int, Reply]]:
        ends, requests, replies = time.monotonic() + timeout, [], []
        try:
            for _, part in parts:
                requests.append(await self.enqueue(part, timeout=max(0, ends - time.monotonic()), expires_in=max(1, int(1000 * timeout)), **how))
            for (start, _), request in zip(parts, requests):
                replies.append((start, await self.wait(request, max(0, ends - time.monotonic()))))
            return replies
        except BaseException as error:
            for request in _left(error, parts, requests, len(replies)):
                with contextlib.suppress(redis.RedisError):
                    await self.cancel(request)
            raise

    async def embed(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> Vector[float]:
        return (await self._ask([(0, _text(text))], timeout, _known(how, OneFields)))[0][1].vector

    async def embed_many(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> list[Vector[float]]:
        """Returns the vectors in the order of the texts, with as few requests as the queue's limits allow."""
        parts = _split(_texts(texts), await self._call(time.monotonic() + timeout, self._meta))
        return [vector for _, reply in await self._ask(parts, timeout, _known(how, Fields)) for vector in reply.vectors]

    async def embed_each(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> AsyncIterator[tuple[int, Vector[float] | SluiceError]]:
        """Yields (number of the text, vector or error) in the order in which they end."""

        async def embed_one(number: int, text: str) -> tuple[int, Vector[float] | SluiceError]:
            try:
                return number, await self.embed(text, timeout=timeout, **how)
            except SluiceError as error:
                return number, error

        tasks = [asyncio.ensure_future(embed_one(number, text)) for number, text in enumerate(_texts(texts))]
        try:
            for ended in asyncio.as_completed(tasks):
                yield await ended
        finally:
            for task in tasks:
                task.cancel()

    async def rerank(self, query: str, documents: Sequence[str], *, best: int | None = None, timeout: float = 30, **how: Unpack[Fields]) -> list[tuple[int, float]]:
        """Returns (number of the document, score), the best first."""
        parts = _split(_texts(documents), await self._call(time.monotonic() + timeout, self._meta))
        fields = _known(how, Fields, task="rerank", query=_text(query), top_n=best or max(1, len(documents)))
        return _merge(await self._ask(parts, timeout, fields), best)

    async def classify(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> list[tuple[str, float]]:
        """Returns (label, score), the best first."""
        return (await self._ask([(0, _text(text))], timeout, _known(how, OneFields, task="classify")))[0][1].labels
