/** What the client needs of a connected client of `redis`: its owner handles its `error` events and closes it. */
export interface Connection {
  xAdd(key: string, id: string, fields: Record<string, string>): Promise<string>;
  hGetAll(key: string): Promise<Record<string, string>>;
  hmGet(key: string, fields: string[]): Promise<(string | null)[]>;
  duplicate(): any;
}

/** Fields of a request, as docs/protocol.md of Sluice has them. `priority` is the stream. Any other name is a TypeError. */
export interface Fields {
  priority?: "high" | "normal" | "low";
  prompt?: string;
  model?: string;
  into?: string;
  into_field?: string;
  meta?: string;
  tenant?: string;
  traceparent?: string;
  tracestate?: string;
  ttl?: number;
  max_attempts?: number;
  delay?: number;
  dims?: number;
  normalize?: boolean | 0 | 1;
  truncate?: boolean | 0 | 1;
  raw?: boolean | 0 | 1;
  [own: `x-${string}`]: string;
}

export interface Options extends Fields {
  /** Seconds until the request is cancelled and a TimeoutError thrown. */
  timeout?: number;
  /** When it is aborted, the request is cancelled and the signal's reason thrown. */
  signal?: AbortSignal;
}

export interface OneOptions extends Options {
  /** 1 to 128 printable ASCII characters, so that a request may be repeated and found again. Default: a random one. */
  id?: string;
}

export interface EnqueueOptions extends Fields {
  id?: string;
  /** For how many seconds it is tried while Redis is away. Default: 5. */
  timeout?: number;
  /** Milliseconds: a request that has not begun by then ends as `expired`. */
  expires_in?: number;
  task?: "embed" | "rerank" | "classify";
  query?: string;
  top_n?: number;
  /** `vectors` needs the default. */
  encoding?: "json" | "f32" | "f16" | "base64" | "int8" | "ubinary";
  /** `wait` hears sooner of the end with the default. */
  notify?: string;
}

/** `id`: where the reply is. `name`: what the queue calls the request, for `cancel`. */
export interface Request {
  id: string;
  name: string;
}

/** A result: `embedding`, `scores`, `top` or `labels` as Redis has it, and the rest in `info`, as docs/protocol.md of Sluice has
 * it. */
export interface Reply {
  status: string;
  embedding?: string;
  scores?: string;
  top?: string;
  labels?: string;
  info: Record<string, any>;
}

/** A reply that is no result; `cancelled` is such a code, too. */
export class SluiceError extends Error {
  code: string;
  retryable: boolean;
  /** Seconds; of `queue_full`. */
  retryAfter: number;
  /** Which of several texts was the reason. */
  index: number | null;
}

export class TimeoutError extends Error {}

/** The vectors of a reply to `enqueue`, one for each text. */
export function vectors(reply: Reply): Float32Array[];

/** Two connections in all, however many calls wait: the given one for commands, and one of its own that waits for what ends. */
export class Client {
  constructor(redis: Connection, queue?: string | { queue?: string });
  /** Does not wait for the reply. */
  enqueue(text: string | string[], options?: EnqueueOptions): Promise<Request>;
  /** null while there is no reply. */
  read(id: string): Promise<Reply | null>;
  wait(request: Request, timeout?: number, options?: { signal?: AbortSignal }): Promise<Reply>;
  cancel(request: Request): Promise<void>;
  embed(text: string, options?: OneOptions): Promise<Float32Array>;
  /** In the order of the texts, in as few requests as the queue's limits allow. */
  embedMany(texts: string[], options?: Options): Promise<Float32Array[]>;
  /** In the order in which they end. */
  embedEach(
    texts: string[],
    options?: Options,
  ): AsyncGenerator<{ number: number; vector: Float32Array; error?: undefined } | { number: number; error: SluiceError; vector?: undefined }>;
  /** The best documents first. */
  rerank(query: string, documents: string[], options?: Options & { best?: number }): Promise<{ index: number; score: number }[]>;
  /** The best label first. */
  classify(text: string, options?: OneOptions): Promise<{ label: string; score: number }[]>;
  /** Closes the client's own connection. */
  close(): Promise<void>;
}
