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

export class SluiceError extends Error {
  constructor(reply) {
    super(reply.message ?? reply.status);
    this.name = "SluiceError";
    this.code = reply.code ?? reply.status;
    this.retryable = reply.retryable === "1";
    this.retryAfter = Number(reply.retry_after_ms ?? 0) / 1000;
    this.index = reply.index === undefined ? null : Number(reply.index);
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

// null while there is no result, or only one of an older request with the same id.
function result(reply, request) {
  if (reply.status === undefined || (request && isOlder(reply.entry, request.name))) return null;
  if (reply.status !== "done") throw new SluiceError(reply);
  return reply;
}

export function vectors(reply) {
  if (reply.encoding !== "base64") throw new TypeError(`not in base64 but in ${reply.encoding}`);
  const bytes = Buffer.from(reply.embedding, "base64");
  if (endianness() === "BE") bytes.swap32();
  const floats = new Float32Array(bytes.length / 4);
  Buffer.from(floats.buffer).set(bytes);
  return Array.from({ length: floats.length / reply.dim }, (_, at) => floats.subarray(at * reply.dim, (at + 1) * reply.dim));
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
  #prefix;
  #results = randomUUID();
  #last = "0";
  #waiting = new Map(); // id of a request -> function that wakes its waiter
  #listener = null;

  constructor(redis, { queue = "default" } = {}) {
    this.#redis = redis;
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

  async enqueue(text, { id = randomUUID(), priority = "normal", timeout, ...fields } = {}) {
    if (!USABLE_ID.test(id)) throw new TypeError(`id ${id} is not 1 to 128 printable ASCII characters, or looks like a name of Redis`);
    const body = { id, notify: `stream:${this.#results}`, ...(Array.isArray(text) ? { inputs: JSON.stringify(text) } : { text }) };
    if ((fields.task ?? "embed") === "embed") body.encoding = "base64";
    if (timeout !== undefined) body.expires_in = Math.max(1, Math.floor(1000 * timeout));
    for (const [name, value] of Object.entries({ ...body, ...fields })) body[name] = String(value);
    const entry = await this.#call(ends(timeout ?? 5), () => this.#redis.xAdd(this.#prefix + STREAMS[priority], "*", body));
    return { id: String(id), name: (priority === "normal" ? "" : priority + ":") + entry };
  }

  async #get(end, id) {
    return this.#call(end, () => this.#redis.hGetAll(`${this.#prefix}reply:${id}`));
  }

  async read(id) {
    return result(await this.#get(ends(5), id));
  }

  async wait(request, timeout = 30) {
    const end = ends(timeout);
    try {
      for (;;) {
        const ended = new Promise((resolve) => this.#waiting.set(request.id, resolve));
        this.#listener ??= this.#listen();
        const reply = result(await this.#get(Math.max(end, ends(1)), request.id), request);
        if (reply !== null) return reply;
        if (Date.now() >= end) throw new TimeoutError(`no reply to ${request.id} within ${timeout.toFixed(1)} s`);
        const timer = new AbortController();
        await Promise.race([ended, sleep(Math.min(LOOK_MS, end - Date.now()), null, { signal: timer.signal }).catch(() => null)]);
        timer.abort();
      }
    } finally {
      this.#waiting.delete(request.id);
    }
  }

  async cancel(request) {
    await this.#call(ends(1), () => this.#redis.xAdd(this.#prefix + "control", "*", { cancel: request.name }));
  }

  // The replies to parts that `split` has made. If one fails, the others are cancelled.
  async #ask(parts, timeout, options) {
    if (options.id !== undefined && parts.length > 1) throw new TypeError("an id is of one request, and these texts need several");
    const end = ends(timeout);
    const requests = [];
    const replies = [];
    try {
      for (const { texts } of parts) requests.push(await this.enqueue(texts, { ...options, timeout: left(end) }));
      for (const request of requests) replies.push(await this.wait(request, left(end)));
      return replies;
    } catch (error) {
      const failed = error instanceof SluiceError;
      if (failed && error.index !== null) error.index += parts[replies.length].start;
      for (const request of requests.slice(replies.length + failed)) await this.cancel(request).catch(() => null);
      throw error;
    }
  }

  async #split(texts, timeout) {
    const limits = await this.#call(ends(timeout), () => this.#redis.hmGet(this.#prefix + "meta", ["max_inputs", "max_text_bytes"]));
    return split(texts, Number(limits[0] ?? 256), Number(limits[1] ?? 1048576));
  }

  async embed(text, { timeout = 30, ...options } = {}) {
    const [reply] = await this.#ask([{ start: 0, texts: text }], timeout, options);
    return vectors(reply)[0];
  }

  async embedMany(texts, { timeout = 60, ...options } = {}) {
    return (await this.#ask(await this.#split(texts, timeout), timeout, options)).flatMap(vectors);
  }

  async *embedEach(texts, options = {}) {
    const ended = [];
    let wake = () => {};
    texts.forEach((text, number) =>
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

  async rerank(query, documents, { timeout = 30, best, ...options } = {}) {
    const parts = await this.#split(documents, timeout);
    const replies = await this.#ask(parts, timeout, { ...options, task: "rerank", query, top_n: best ?? Math.max(1, documents.length) });
    const scores = replies.flatMap((reply, part) =>
      JSON.parse(reply.top).map(({ index, score }) => ({ index: parts[part].start + index, score })));
    return scores.sort((one, other) => other.score - one.score || one.index - other.index).slice(0, best);
  }

  async classify(text, { timeout = 30, ...options } = {}) {
    const [reply] = await this.#ask([{ start: 0, texts: text }], timeout, { ...options, task: "classify" });
    return JSON.parse(reply.labels);
  }
}
