// A client for Sluice: texts become vectors, scores or labels, over Redis. docs/protocol.md of Sluice is the contract.
//
// A request that fails throws SluiceError; one that is not answered in time is cancelled, and throws TimeoutError. While Redis is
// away calls are repeated until their time is up: each request has an id, so a repeated one still has one reply.

import { randomUUID } from "node:crypto";
import { endianness } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const STREAMS = { high: "requests:high", normal: "requests", low: "requests:low" };
const USABLE_ID = /^(?!(high:|low:)?\d{13,}-\d+$)[ -~]{1,128}$/;
const FINAL = /^(?!LOADING )[A-Z]+ |^The client is closed/; // Redis' own errors open with a code; others are about the connection
const PAUSE_MS = 100; // before a command is repeated
const LOOK_MS = 2000; // between two looks at a reply, in case that the news of its end was lost
const SILENT_MS = 10000; // a queue of which nothing has been published for so long has no worker
const FIELDS = ["priority", "prompt", "model", "into", "into_field", "meta", "tenant", "traceparent", "tracestate", "ttl", "max_attempts",
  "delay", "dims", "normalize", "truncate", "raw"];
const CALL = [...FIELDS, "timeout", "signal"]; // of each method that waits
const ENQUEUE = [...FIELDS, "timeout", "id", "encoding", "task", "query", "top_n", "notify", "expires_in"];

export class SluiceError extends Error {
  constructor(reply) {
    super(reply.message ?? reply.status);
    this.name = "SluiceError";
    this.code = reply.code ?? reply.status;
    this.retryable = reply.info.retryable ?? false;
    this.retryAfter = (reply.info.retry_after_ms ?? 0) / 1000;
    this.index = reply.info.index ?? null;
  }
}

export class TimeoutError extends Error {
  name = "TimeoutError";
}

const ends = (seconds) => Date.now() + 1000 * seconds;
const left = (end) => Math.max(0, end - Date.now()) / 1000;

// The milliseconds and the number of a request's name.
const age = (name) => name.replace(/^\w+:/, "").split("-").map(BigInt);

function isOlder(name, other) {
  const [[ms, number], [otherMs, otherNumber]] = [age(name), age(other)];
  return ms < otherMs || (ms === otherMs && number < otherNumber);
}

const kind = (value) => (value === null ? "null" : Array.isArray(value) ? "an array" : typeof value);

function oneText(text) {
  if (typeof text !== "string") throw new TypeError(`one text is a string (embedMany takes several), not ${kind(text)}`);
  return text;
}

function severalTexts(texts) {
  if (!Array.isArray(texts)) throw new TypeError(`several texts are an array of strings, not ${kind(texts)}`);
  return texts.map(oneText);
}

// Refuses anything but what `enqueue` has returned.
function enqueued(request) {
  if (typeof request?.id !== "string" || typeof request.name !== "string") throw new TypeError("wait and cancel take what enqueue returned");
  return request;
}

// Refuses options of other names, except for users' own fields.
function known(options, names) {
  for (const name of Object.keys(options))
    if (!names.includes(name) && !name.startsWith("x-")) throw new TypeError(`no option ${name} here; there are ${names.join(", ")}`);
  return options;
}

function word(name, value) {
  if (!["string", "number", "bigint", "boolean"].includes(typeof value)) throw new TypeError(`${name} is a string or a number, not ${kind(value)}`);
  return typeof value === "boolean" ? String(Number(value)) : String(value);
}

// null while there is no result, or only one of an older request with the same id.
function result(fields, request) {
  if (fields.status === undefined) return null;
  const reply = { ...fields, info: JSON.parse(fields.info) };
  if (request && isOlder(reply.info.entry, request.name)) return null;
  if (reply.status !== "done") throw new SluiceError(reply);
  return reply;
}

export function vectors(reply) {
  const { encoding, dim } = reply.info;
  if (encoding !== "base64") throw new TypeError(`not in base64 but in ${encoding}: read reply.embedding`);
  const bytes = Buffer.from(reply.embedding, "base64");
  if (endianness() === "BE") bytes.swap32();
  const floats = new Float32Array(bytes.length / 4);
  Buffer.from(floats.buffer).set(bytes);
  return Array.from({ length: floats.length / dim }, (_, at) => floats.subarray(at * dim, (at + 1) * dim));
}

// Parts that a request may carry, each with the number of its first text.
function split(texts, most, mostBytes) {
  const parts = [];
  let bytes = 0;
  texts.forEach((text, at) => {
    const length = Buffer.byteLength(text);
    const part = parts.at(-1);
    if (part === undefined || part.texts.length === most || bytes + length > mostBytes) {
      parts.push({ start: at, texts: [text] });
      bytes = length;
    } else {
      part.texts.push(text);
      bytes += length;
    }
  });
  return parts;
}

export class Client {
  #redis; // for commands
  #listening = null; // a connection of its own, because it blocks
  #queue;
  #prefix;
  #results = randomUUID();
  #last = "0";
  #waiting = new Map(); // id of a request -> function that wakes its waiter
  #listener = null;

  constructor(redis, options = {}) {
    const { queue = "default" } = typeof options === "string" ? { queue: options } : known(options, ["queue"]);
    if (!/^[a-z0-9_.-]{1,64}$/.test(queue)) throw new TypeError(`a queue's name is 1 to 64 of a-z 0-9 _ . -, not ${queue}`);
    this.#redis = redis;
    this.#queue = queue;
    this.#prefix = `sluice:{${queue}}:`;
  }

  // Closes the client's own connection; the one that it was given is its owner's.
  async close() {
    this.#waiting.clear();
    await this.#listening?.disconnect();
    await this.#listener;
  }

  // Repeats a command until `end` while the connection is lost.
  async #call(end, command) {
    const timer = new AbortController();
    const late = sleep(end - Date.now(), null, { signal: timer.signal }).then(
      () => Promise.reject(new TimeoutError("Redis does not answer in time")), () => null);
    try {
      for (;;) {
        try {
          return await Promise.race([command(), late]);
        } catch (error) {
          if (FINAL.test(error.message) || error instanceof TimeoutError || Date.now() >= end) throw error;
        }
        await sleep(PAUSE_MS);
      }
    } finally {
      timer.abort();
    }
  }

  async #listen() {
    while (this.#waiting.size > 0) {
      try {
        if (this.#listening === null) {
          this.#listening = this.#redis.duplicate();
          this.#listening.on("error", () => {}); // it reconnects by itself
          await this.#listening.connect();
        }
        const streams = await this.#listening.xRead(
          [{ key: `${this.#prefix}results:${this.#results}`, id: this.#last }], { COUNT: 1000, BLOCK: 1000 });
        for (const { id, message } of streams?.[0].messages ?? []) {
          this.#last = id;
          this.#waiting.get(message.id)?.();
        }
      } catch {
        if (this.#waiting.size > 0) await sleep(PAUSE_MS);
      }
    }
    this.#listener = null;
  }

  async enqueue(text, options = {}) {
    const { id = randomUUID(), priority = "normal", timeout = 5, ...fields } = known(options, ENQUEUE);
    if (!USABLE_ID.test(id)) throw new TypeError(`id ${id} is not 1 to 128 printable ASCII characters, or looks like a name of Redis`);
    if (!Object.hasOwn(STREAMS, priority)) throw new TypeError(`priority is high, normal or low, not ${priority}`);
    const body = { id, notify: `stream:${this.#results}` };
    if (Array.isArray(text)) body.inputs = JSON.stringify(severalTexts(text));
    else body.text = oneText(text);
    if ((fields.task ?? "embed") === "embed") body.encoding = "base64";
    for (const [name, value] of Object.entries({ ...body, ...fields })) if (value !== undefined) body[name] = word(name, value);
    const entry = await this.#call(ends(timeout), () => this.#redis.xAdd(this.#prefix + STREAMS[priority], "*", body));
    return { id: String(id), name: (priority === "normal" ? "" : priority + ":") + entry };
  }

  async #get(end, id) {
    return this.#call(end, () => this.#redis.hGetAll(`${this.#prefix}reply:${id}`));
  }

  async read(id) {
    if (typeof id !== "string") throw new TypeError(`read takes an id, not ${kind(id)}`);
    return result(await this.#get(ends(5), id));
  }

  // All times are Redis' own. They tell whether a worker lives.
  async #late(request, waited) {
    const [published] = await this.#call(ends(1), () => this.#redis.hmGet(this.#prefix + "meta", ["published_at"]));
    const silent = Number(age(request.name)[0]) + 1000 * waited - Number(published);
    const why = published === null ? "has never had a worker" : silent > SILENT_MS ? `has had no worker for ${Math.round(silent / 1000)} s` : null;
    return new TimeoutError(`no reply to ${request.id} in time` + (why === null ? "" : `: queue ${this.#queue} ${why}`));
  }

  async wait(request, timeout = 30, options = {}) {
    const { id } = enqueued(request);
    const { signal } = known(options, ["signal"]);
    const end = ends(timeout);
    const wake = () => this.#waiting.get(id)?.();
    signal?.addEventListener("abort", wake);
    try {
      for (;;) {
        signal?.throwIfAborted();
        const ended = new Promise((resolve) => this.#waiting.set(id, resolve));
        this.#listener ??= this.#listen();
        const reply = result(await this.#get(Math.max(end, ends(1)), id), request);
        if (reply !== null) return reply;
        if (Date.now() >= end) throw await this.#late(request, timeout);
        const timer = new AbortController();
        await Promise.race([ended, sleep(Math.min(LOOK_MS, end - Date.now()), null, { signal: timer.signal }).catch(() => null)]);
        timer.abort();
      }
    } finally {
      signal?.removeEventListener("abort", wake);
      this.#waiting.delete(id);
    }
  }

  async cancel(request) {
    const { name } = enqueued(request);
    await this.#call(ends(1), () => this.#redis.xAdd(this.#prefix + "control", "*", { cancel: name }));
  }

  // The replies to parts that `split` has made. If one fails, the others are cancelled.
  async #ask(parts, timeout, { signal, ...options }) {
    if (options.id !== undefined && parts.length > 1) throw new TypeError("an id is of one request, and these texts need several");
    const end = ends(timeout);
    const requests = [];
    const replies = [];
    try {
      for (const { texts } of parts) {
        signal?.throwIfAborted();
        const seconds = left(end);
        requests.push(await this.enqueue(texts, { ...options, timeout: seconds, expires_in: Math.max(1, Math.floor(1000 * seconds)) }));
      }
      for (const request of requests) replies.push(await this.wait(request, left(end), { signal }));
      return replies;
    } catch (error) {
      const failed = error instanceof SluiceError;
      if (failed && error.index !== null) error.index += parts[replies.length].start;
      for (const request of requests.slice(replies.length + failed)) await this.cancel(request).catch(() => null);
      throw error;
    }
  }

  async #split(list, timeout) {
    const texts = severalTexts(list);
    const limits = await this.#call(ends(timeout), () => this.#redis.hmGet(this.#prefix + "meta", ["max_inputs", "max_text_bytes"]));
    return split(texts, Number(limits[0] ?? 256), Number(limits[1] ?? 1048576));
  }

  async embed(text, options = {}) {
    const { timeout = 30, ...fields } = known(options, [...CALL, "id"]);
    const [reply] = await this.#ask([{ start: 0, texts: oneText(text) }], timeout, fields);
    return vectors(reply)[0];
  }

  async embedMany(texts, options = {}) {
    const { timeout = 60, ...fields } = known(options, CALL);
    return (await this.#ask(await this.#split(texts, timeout), timeout, fields)).flatMap(vectors);
  }

  async *embedEach(texts, options = {}) {
    const ended = [];
    let wake = () => {};
    known(options, CALL);
    severalTexts(texts).forEach((text, number) =>
      this.embed(text, { timeout: 60, ...options })
        .then((vector) => ended.push({ number, vector }), (error) => ended.push({ number, error }))
        .then(() => wake()));
    for (let count = 0; count < texts.length; count++) {
      while (ended.length === 0) await new Promise((resolve) => (wake = resolve));
      const one = ended.shift();
      if (one.error !== undefined && !(one.error instanceof SluiceError)) throw one.error;
      yield one;
    }
  }

  async rerank(query, documents, options = {}) {
    const { timeout = 30, best, ...fields } = known(options, [...CALL, "best"]);
    const parts = await this.#split(documents, timeout);
    const own = { task: "rerank", query: oneText(query), top_n: best ?? Math.max(1, documents.length) };
    const replies = await this.#ask(parts, timeout, { ...fields, ...own });
    const scores = replies.flatMap((reply, part) =>
      JSON.parse(reply.top).map(({ index, score }) => ({ index: parts[part].start + index, score })));
    return scores.sort((one, other) => other.score - one.score || one.index - other.index).slice(0, best);
  }

  async classify(text, options = {}) {
    const { timeout = 30, ...fields } = known(options, [...CALL, "id"]);
    const [reply] = await this.#ask([{ start: 0, texts: oneText(text) }], timeout, { ...fields, task: "classify" });
    return JSON.parse(reply.labels);
  }
}
