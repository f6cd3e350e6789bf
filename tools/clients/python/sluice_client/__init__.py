"""A client for Sluice: texts become vectors, scores or labels, over Redis.

`Client` takes a `redis.Redis`, `AsyncClient` a `redis.asyncio.Redis`; both have the same methods. A request that fails raises
`SluiceError`. One that is not answered in time is cancelled, and raises `TimeoutError`. While Redis is away calls are repeated
until their time is up: each request has an id, so a repeated one still has one reply.

docs/protocol.md of Sluice is the contract; its fields (`Fields`) may be given to each method by name."""

from __future__ import annotations

import array
import asyncio
import contextlib
import dataclasses
import json
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

import redis
import redis.asyncio

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AsyncClient", "Client", "Reply", "Request", "SluiceError"]

Word = Union[str, int, float, bytes]
Vector = array.array  # 32-bit floats
_Parts = Sequence[tuple[int, Union[str, Sequence[str]]]]

_USABLE_ID = re.compile(r"(?!(high:|low:)?\d{13,}-\d+$)[ -~]{1,128}")
_LOST = (redis.ConnectionError, redis.TimeoutError)
_PAUSE_S = 0.1  # before a command is repeated
_LOOK_S = 2  # between two looks at a reply, below the socket timeout of redis-py


class Fields(TypedDict, total=False):
    """`priority` is the stream; all others are fields of a request. Waiting needs the default `notify`."""

    priority: Literal["high", "normal", "low"]
    encoding: Literal["json", "f32", "f16", "base64", "int8", "ubinary"]
    task: Literal["embed", "rerank", "classify"]
    prompt: str
    model: str
    into: str
    into_field: str
    meta: str
    tenant: str
    traceparent: str
    tracestate: str
    notify: str
    ttl: int
    max_attempts: int
    delay: int
    dims: int
    top_n: int
    normalize: Literal[0, 1]
    truncate: Literal[0, 1]
    raw: Literal[0, 1]


class OneFields(Fields, total=False):
    id: str
    query: str


class SluiceError(Exception):
    """A reply that is not a result; `cancelled` is one of the codes."""

    def __init__(self, fields: Mapping[str, bytes]) -> None:
        self.code = fields.get("code", fields["status"]).decode()
        super().__init__(fields.get("message", fields["status"]).decode())
        self.retryable = fields.get("retryable") == b"1"
        self.retry_after = int(fields.get("retry_after_ms", b"0")) / 1000  # seconds, for queue_full
        self.index = int(fields["index"]) if "index" in fields else None  # the text at fault, if there are several


@dataclasses.dataclass(frozen=True)
class Request:
    """`id`: under which the reply is. `name`: the queue's name for the request, for `cancel`."""

    id: str
    name: str


@dataclasses.dataclass(frozen=True)
class Reply:
    """A result, with all fields of the reply as they are in Redis."""

    fields: Mapping[str, bytes]

    @property
    def vectors(self) -> list[Vector[float]]:
        if self.fields["encoding"] != b"f32":
            raise ValueError("not in f32 but in " + self.fields["encoding"].decode())
        floats, dim = array.array("f", self.fields["embedding"]), int(self.fields["dim"])
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


def _split(texts: Sequence[str], limits: Sequence[bytes | None]) -> _Parts:
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
        if connection.get_encoder().decode_responses:
            raise ValueError("vectors are bytes: the connection must not have decode_responses")
        self._connection = connection
        self._prefix = "sluice:{" + queue + "}:"
        self._limits: list[Word] = ["HMGET", self._prefix + "meta", "max_inputs", "max_text_bytes"]

    def _add(self, text: str | Sequence[str], timeout: float | None, notify: str, fields: Mapping[str, Any]) -> tuple[Request, list[Word]]:
        """The request, whose name still lacks the entry, and the command that enqueues it."""
        body = {"id": uuid.uuid4().hex, "notify": notify, **fields}
        body.update({"text": text} if isinstance(text, str) else {"inputs": json.dumps(list(text))})
        if not _USABLE_ID.fullmatch(body["id"]):
            raise ValueError(f"id {body['id']!r} is not 1 to 128 printable ASCII characters, or looks like a name of Redis")
        if body.get("task", "embed") == "embed":
            body.setdefault("encoding", "f32")
        if timeout is not None:
            body["expires_in"] = max(1, int(1000 * timeout))
        stream, prefix = {"high": ("requests:high", "high:"), "normal": ("requests", ""), "low": ("requests:low", "low:")}[body.pop("priority", "normal")]
        return Request(body["id"], prefix), ["XADD", self._prefix + stream, "*", *(word for pair in body.items() for word in pair)]

    def _get(self, id: str) -> list[Word]:
        return ["HGETALL", f"{self._prefix}reply:{id}"]

    def _cancel(self, request: Request) -> list[Word]:
        return ["XADD", self._prefix + "control", "*", "cancel", request.name]

    def _reply(self, answer: Mapping[bytes, bytes], request: Request | None = None) -> Reply | None:
        """The reply; None while there is none, or only that of an older request with the same id."""
        fields = {key.decode(): value for key, value in answer.items()}
        if "status" not in fields or (request and _age(fields["entry"].decode()) < _age(request.name)):
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

    def enqueue(self, text: str | Sequence[str], *, timeout: float | None = None, **fields: Unpack[OneFields]) -> Request:
        """Sends a request without waiting for its reply. With a timeout (seconds) a request that has not begun by then
        ends as `expired`."""
        request, command = self._add(text, timeout, "1", fields)
        entry = self._call(time.monotonic() + (timeout or 0), command)
        return Request(request.id, request.name + entry.decode())

    def read(self, id: str) -> Reply | None:
        """Returns the reply, or None while there is none."""
        return self._reply(self._call(0, self._get(id)))

    def wait(self, request: Request, timeout: float = 30) -> Reply:
        ends = time.monotonic() + timeout
        while True:
            reply = self._reply(self._call(ends, self._get(request.id)), request)
            left = ends - time.monotonic()
            if reply:
                return reply
            if left <= 0:
                raise TimeoutError(f"no reply to {request.id} within {timeout:.1f} s")
            self._call(ends, ["BLPOP", f"{self._prefix}wake:{request.id}", f"{min(_LOOK_S, max(0.1, left)):.3f}"])

    def cancel(self, request: Request) -> None:
        self._call(0, self._cancel(request))

    def _ask(self, parts: _Parts, timeout: float, **how: Any) -> list[tuple[int, Reply]]:
        ends, requests, replies = time.monotonic() + timeout, [], []
        try:
            for _, part in parts:
                requests.append(self.enqueue(part, timeout=ends - time.monotonic(), **how))
            for (start, _), request in zip(parts, requests):
                replies.append((start, self.wait(request, ends - time.monotonic())))
            return replies
        except BaseException as error:
            for request in _left(error, parts, requests, len(replies)):
                with contextlib.suppress(redis.RedisError):
                    self.cancel(request)
            raise

    def embed(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> Vector[float]:
        return self._ask([(0, text)], timeout, **how)[0][1].vector

    def embed_many(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> list[Vector[float]]:
        """Returns the vectors in the order of the texts, with as few requests as the queue's limits allow."""
        parts = _split(texts, self._call(time.monotonic() + timeout, self._limits))
        return [vector for _, reply in self._ask(parts, timeout, **how) for vector in reply.vectors]

    def embed_each(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> Iterator[tuple[int, Vector[float] | SluiceError]]:
        """Yields (number of the text, vector or error) in the order in which they end."""
        ends, stream, last = time.monotonic() + timeout, uuid.uuid4().hex, "0"
        how["notify"] = "stream:" + stream
        asked = [self.enqueue(text, timeout=timeout, **how) for text in texts]
        numbers = {request.id: number for number, request in enumerate(asked)}
        while numbers and time.monotonic() < ends:
            found = list(_ended(self._call(ends, ["XREAD", "COUNT", 1000, "BLOCK", 1000, "STREAMS", f"{self._prefix}results:{stream}", last])))
            last = found[-1][0] if found else last
            for id in [id for _, id in found] or list(numbers)[:100]:  # the stream may be lost with its server
                try:
                    reply = self._reply(self._call(ends, self._get(id))) if id in numbers else None
                    if reply:
                        yield numbers.pop(id), reply.vector
                except SluiceError as error:
                    yield numbers.pop(id), error
        for number in numbers.values():
            self.cancel(asked[number])
        if numbers:
            raise TimeoutError(f"{len(numbers)} texts have no reply within {timeout} s")

    def rerank(self, query: str, documents: Sequence[str], *, best: int | None = None, timeout: float = 30, **how: Unpack[Fields]) -> list[tuple[int, float]]:
        """Returns (number of the document, score), the best first."""
        parts = _split(documents, self._call(time.monotonic() + timeout, self._limits))
        fields = {**how, "task": "rerank", "query": query, "top_n": best or max(1, len(documents))}
        return _merge(self._ask(parts, timeout, **fields), best)

    def classify(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> list[tuple[str, float]]:
        """Returns (label, score), the best first."""
        return self._ask([(0, text)], timeout, **{**how, "task": "classify"})[0][1].labels


class AsyncClient(_Queue):
    """A client with two connections, however many calls wait: commands take turns on one, the other waits for ends of
    requests."""

    def __init__(self, connection: redis.asyncio.Redis, queue: str = "default") -> None:
        super().__init__(connection, queue)
        self._turn = asyncio.Lock()
        self._results = uuid.uuid4().hex
        self._last = "0"
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
                waiting = self._waiting.pop(id, None)
                if waiting:
                    waiting.set_result(None)

    async def enqueue(self, text: str | Sequence[str], *, timeout: float | None = None, **fields: Unpack[OneFields]) -> Request:
        """Sends a request without waiting for its reply. With a timeout (seconds) a request that has not begun by then
        ends as `expired`."""
        request, command = self._add(text, timeout, "stream:" + self._results, fields)
        entry = await self._call(time.monotonic() + (timeout or 0), command)
        return Request(request.id, request.name + entry.decode())

    async def read(self, id: str) -> Reply | None:
        """Returns the reply, or None while there is none."""
        return self._reply(await self._call(0, self._get(id)))

    async def wait(self, request: Request, timeout: float = 30) -> Reply:
        ends = time.monotonic() + timeout
        try:
            while True:
                ended = self._waiting.setdefault(request.id, asyncio.get_running_loop().create_future())
                if not self._listener or self._listener.done():
                    self._listener = asyncio.ensure_future(self._listen())
                reply = self._reply(await self._call(ends, self._get(request.id)), request)
                left = ends - time.monotonic()
                if reply:
                    return reply
                if left <= 0:
                    raise TimeoutError(f"no reply to {request.id} within {timeout:.1f} s")
                await asyncio.wait([ended], timeout=min(_LOOK_S, left))
        finally:
            self._waiting.pop(request.id, None)

    async def cancel(self, request: Request) -> None:
        await self._call(0, self._cancel(request))

    async def _ask(self, parts: _Parts, timeout: float, **how: Any) -> list[tuple[int, Reply]]:
        ends, requests, replies = time.monotonic() + timeout, [], []
        try:
            for _, part in parts:
                requests.append(await self.enqueue(part, timeout=ends - time.monotonic(), **how))
            for (start, _), request in zip(parts, requests):
                replies.append((start, await self.wait(request, ends - time.monotonic())))
            return replies
        except BaseException as error:
            for request in _left(error, parts, requests, len(replies)):
                with contextlib.suppress(redis.RedisError):
                    await self.cancel(request)
            raise

    async def embed(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> Vector[float]:
        return (await self._ask([(0, text)], timeout, **how))[0][1].vector

    async def embed_many(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> list[Vector[float]]:
        """Returns the vectors in the order of the texts, with as few requests as the queue's limits allow."""
        parts = _split(texts, await self._call(time.monotonic() + timeout, self._limits))
        return [vector for _, reply in await self._ask(parts, timeout, **how) for vector in reply.vectors]

    async def embed_each(self, texts: Sequence[str], *, timeout: float = 60, **how: Unpack[Fields]) -> AsyncIterator[tuple[int, Vector[float] | SluiceError]]:
        """Yields (number of the text, vector or error) in the order in which they end."""

        async def embed_one(number: int, text: str) -> tuple[int, Vector[float] | SluiceError]:
            try:
                return number, await self.embed(text, timeout=timeout, **how)
            except SluiceError as error:
                return number, error

        tasks = [asyncio.ensure_future(embed_one(number, text)) for number, text in enumerate(texts)]
        try:
            for ended in asyncio.as_completed(tasks):
                yield await ended
        finally:
            for task in tasks:
                task.cancel()

    async def rerank(self, query: str, documents: Sequence[str], *, best: int | None = None, timeout: float = 30, **how: Unpack[Fields]) -> list[tuple[int, float]]:
        """Returns (number of the document, score), the best first."""
        parts = _split(documents, await self._call(time.monotonic() + timeout, self._limits))
        fields = {**how, "task": "rerank", "query": query, "top_n": best or max(1, len(documents))}
        return _merge(await self._ask(parts, timeout, **fields), best)

    async def classify(self, text: str, *, timeout: float = 30, **how: Unpack[OneFields]) -> list[tuple[str, float]]:
        """Returns (label, score), the best first."""
        return (await self._ask([(0, text)], timeout, **{**how, "task": "classify"}))[0][1].labels
