// The dashboard of `sluice serve`; docs/admin-api.md describes the server's answers. Texts, ids, tenants and messages come
// from anybody, so they get into the page as text (textContent, append), never as HTML.
"use strict";

const EVERY_MS = 1000;
const WHOLE_LOOKS = 10;       // one look in ten is at all queues of the Redis, the others at the one that is shown
const RATE_LOOKS = 5;         // a worker's rate is over five looks: its counters move with each heartbeat, about once a second
const HISTORY_MS = [300e3, 3600e3]; // the shortest and the longest time that the charts show
const DAYS = 91;
const CLASSES = ["high", "normal", "low"];
const state = { section: null, looked: 0, every: 0 };
const $ = (id) => document.getElementById(id);

/* ---- elements ---- */
/** An element with these properties; strings among the children become text. */
function el(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const say = (element, text) => { if (element.textContent !== String(text)) { element.textContent = text; } };

/** Makes `parent` show `items` in their order. While an item stays, so do its element and the focus in it. */
function keep(parent, items, key, make, update) {
  const names = new Set(items.map((item) => String(key(item))));
  for (const child of [...parent.children]) { if (!names.delete(child.dataset.key)) { child.remove(); } } // first, because moving an element costs it the focus
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item)), child = old.get(name) ?? make(item);
    child.dataset.key = name;
    old.delete(name);
    if (child === place) { place = place.nextElementSibling; } else { parent.insertBefore(child, place); }
    update?.(child, item);
  }
}

/** The rows of a table: `cells(item)` are texts or elements; `buttons(item)`, made once, are in the last cell. */
function rows(body, items, key, cells, buttons = () => []) {
  const make = (item) => {
    const made = el("tr", {}, ...[...body.parentNode.tHead.rows[0].cells].map((head) => {
      const cell = el("td", { className: head.className });
      cell.dataset.label = head.textContent;
      return cell;
    }));
    made.lastChild.append(...buttons(item));
    return made;
  };
  keep(body, items, key, make, (made, item) => cells(item).forEach((value, index) => {
    const cell = made.cells[index];
    if (!(value instanceof Node)) { say(cell, value); } else if (!cell.firstChild?.isEqualNode(value)) { cell.replaceChildren(value); }
  }));
}

const pair = (name, value = "") => el("div", {}, el("dt", { textContent: name }), el("dd", { textContent: value }));

/** Names, values and perhaps classes of a <dl>. */
function pairs(list, items) {
  keep(list, items, ([name]) => name, ([name]) => pair(name), (child, [, value, kind = ""]) => {
    say(child.lastChild, value);
    child.className = kind;
  });
}

const button = (text, act, className = "") => el("button", { type: "button", textContent: text, className, onclick: (event) => run(event.currentTarget, act) });
const mono = (text) => el("span", { className: "mono", textContent: text });
const link = (id) => el("a", { href: "#request/" + encodeURIComponent(id), textContent: id, className: "mono" });

function badge(mark, text, kind) {
  say(mark, text);
  return Object.assign(mark, { className: "badge " + kind });
}

/* ---- numbers; null: not known ---- */
/** A number as people write it: 0.13, 3.4, 1,234, 12.3 M. */
function human(number) {
  if (number == null) { return "–"; }
  const size = Math.abs(number);
  if (size >= 1e6) { return Number((number / 1e6).toPrecision(3)).toLocaleString("en") + " M"; }
  return Number(size >= 9.95 ? number.toFixed(0) : size >= 1 ? number.toFixed(1) : number.toPrecision(2)).toLocaleString("en", { maximumFractionDigits: 20 });
}

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
const ratio = (part, whole) => whole > 0 && part != null ? part / whole : null;
const count = (number) => number == null ? "–" : Math.round(number).toLocaleString("en");
const share = (number) => number == null ? "–" : (number * 100).toFixed(number > 0 && number < 0.1 ? 1 : 0) + " %";
const many = (number, one, more = one + "s") => count(number) + " " + (number === 1 ? one : more);
const clock = (ms) => new Date(ms).toLocaleString("sv"); // 2026-11-23 14:03:05, local time
const joined = (...words) => words.filter(Boolean).join(" · ");
const seconds = (value) => span(value == null ? null : value * 1000);

function span(ms) {
  if (ms == null) { return "–"; }
  const [size, unit] = [[86400e3, "d"], [3600e3, "h"], [60e3, "min"], [1e3, "s"]].find(([size]) => ms >= size * 1.5) ?? [1, "ms"];
  return human(ms / size) + " " + unit;
}

function bytes(number) {
  const power = number >= 1 ? Math.min(4, Math.floor(Math.log10(number) / 3)) : 0;
  return human(number / 1000 ** power) + " " + ["B", "kB", "MB", "GB", "TB"][power];
}

/* ---- what is said to the server, and to the operator ---- */
const token = () => sessionStorage.getItem("token");
const refusal = (status, message) => Object.assign(new Error(message), { status });
async function call(path, body) {
  const headers = { ...token() && { Authorization: "Bearer " + token() }, ...body && { "Content-Type": "application/json" } };
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(20000) })
    .catch(() => { throw refusal(0, "The daemon does not answer."); });
  if (path === "/metrics" && response.ok) { return response.text(); }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) { setToken(""); }
  if (!response.ok) { throw refusal(response.status, answer.error ?? "The daemon answered " + response.status + "."); }
  return answer;
}

function get(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  return call("/api/" + path + (given.length > 0 ? "?" : "") + given.map(([name, value]) => name + "=" + encodeURIComponent(value)).join("&"));
}

/** Sends a request with the token, and asks for the token if there is none, or if it is wrong. */
async function post(path, body) {
  for (let why = ""; ;) {
    if (!token() && !await sign(why)) { throw refusal(0, ""); }
    try {
      return await call("/api/" + path, { queue: state.queue, ...body });
    } catch (error) {
      if (error.status !== 401) { throw error; }
      why = "That was not the right one. ";
    }
  }
}

function setToken(given) {
  if (given) { sessionStorage.setItem("token", given.replace(/[^ -~]/g, "?")); } else { sessionStorage.removeItem("token"); }
  say($("sign"), given ? "Forget token" : "Enter token");
}

/** Asks for the token; null if it was not given. */
async function sign(why = "") {
  const [given] = await ask("Token", why + "It is the first line of the file that the setting http_token_file names.", "Use it",
    { Token: { type: "password", required: true } }) ?? [];
  if (given) { setToken(given); }
  return given;
}

/** Asks a question, with fields (label -> properties) if it has some. Gives the texts typed; null if it was cancelled, or if another question took its place. */
function ask(title, text, yes, fields = {}) {
  ask.answer?.(null);
  const dialog = $("ask"), inputs = Object.values(fields).map((properties) => el("input", { autocomplete: "off", ...properties }));
  say($("ask-title"), title);
  say($("ask-text"), text);
  say(dialog.querySelector("button"), yes);
  $("ask-fields").replaceChildren(...Object.keys(fields).map((label, place) => el("label", {}, label + " ", inputs[place])));
  dialog.returnValue = "";
  if (!dialog.open) { dialog.showModal(); }
  return new Promise((resolve) => {
    ask.answer = resolve;
    dialog.onclose = () => {
      resolve(dialog.returnValue === "yes" ? inputs.map((input) => input.value.trim()) : null);
      $("ask-fields").replaceChildren(); // nobody reads the token there
    };
  });
}

function tell(text, bad = false) {
  say($("told"), text);
  $("told").classList.toggle("bad", bad);
  clearTimeout(tell.timer);
  tell.timer = setTimeout(say, bad ? 15000 : 5000, $("told"), "");
}

/** Does a button's action, one at a time, and shows its result. */
async function run(pressed, act) {
  pressed.disabled = true;
  try {
    tell(await act(pressed) ?? "");
  } catch (error) {
    tell(error.message, true);
  }
  pressed.disabled = false;
  if (document.activeElement === document.body) { (pressed.isConnected ? pressed : $("main")).focus(); } // a disabled button loses the focus
  look();
}

/* ---- live ---- */
/** The samples of /metrics for this queue, or for the process: name -> [{labels, value}]. */
function parse(text, queue) {
  const found = {};
  for (const line of text.split("\n")) {
    const parts = /^(\w+(?<!_bucket))(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts) { continue; }
    const labels = Object.fromEntries([...(parts[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, value]));
    if ((labels.queue ?? queue) === queue) { (found[parts[1]] ??= []).push({ labels, value: Number(parts[3]) }); }
  }
  return found;
}

const choose = (queue) => { // nothing of the previous queue stays that could be pressed
  Object.assign(state, { queue, looks: [], lists: {}, history: [], historyAt: 0 });
  for (const one of document.querySelectorAll("section > table > tbody, #request-at, #request-found, #try-found")) { one.replaceChildren(); }
  for (const one of document.querySelectorAll(".empty, .more")) { one.hidden = true; }
  if (queue) { sessionStorage.setItem("queue", queue); }
  go();
};

const inClasses = (queue, what) => sum(CLASSES.map((name) => queue.classes[name][what]));
const endsOf = (ended) => ({ done: ended.done, errors: sum(Object.values(ended)) - ended.done - (ended.cancelled ?? 0) });
const inEnds = (queue, what) => sum(CLASSES.map((name) => endsOf(queue.ended[name])[what]));
const stateOf = (queue) => queue.error ? ["unknown", "odd"] : queue.paused ? ["paused", "odd"] : queue.workers === 0 ? ["no workers", "bad"]
  : queue.tight > 0 ? ["Redis full", "bad"] : ["running", "good"];
const pausedWords = (queue) => queue.paused && joined(queue.paused_since_ms && "paused since " + clock(queue.paused_since_ms), queue.paused_until_ms && "until " + clock(queue.paused_until_ms),
  queue.paused_by && "by " + queue.paused_by, queue.paused_why);

/** A worker's counts since an earlier look; empty if it was not there. */
function worked(now, was, worker) {
  const old = was !== now && was.workers.find((other) => other.worker === worker.worker), more = (name) => Math.max(0, worker[name] - old[name]);
  return !old ? {} : { done: more("done"), errors: more("errors"), texts: ratio(more("rows"), more("batches")),
    padding: ratio(more("computed_tokens") - more("tokens"), more("computed_tokens")), ms: now.queue.at - was.queue.at };
}

/** Each chart: its title, whose numbers it shows, its lines (name, how a value is written, its name in the history), the least top of its scale. */
const perSecond = (value) => value == null ? "–" : human(value) + "/s";
const CHARTS = [
  ["Throughput", "the queue", [["done", perSecond, "done_per_s"], ["errors", perSecond, "errors_per_s"]], 1],
  ["Latency", "this daemon", [["p50", seconds, "p50_s"], ["p99", seconds, "p99_s"]], 0.001],
  ["Requests", "the queue", [["unread", human, "unread"], ["running", human, "running"]], 1],
  ["Busy", "this daemon", [["of its threads", share, "busy"]], 1],
  ["Batch", "this daemon", [["texts", human, "batch_texts"]], 1],
  ["Batch", "this daemon", [["tokens", human, "batch_tokens"]], 1],
  ["Padding", "this daemon", [["of the tokens", share, "padding"]], 0.01],
  ["Redis", "this daemon", [["commands", perSecond, "commands_per_s"]], 1],
];
const BY_DAY = ["Days", "UTC", [["done", count, "done"], ["errors", count, "errors"]], 1];

function makeChart([title, whose, lines]) {
  const made = $("chart").content.firstElementChild.cloneNode(true), [head, now, { lastElementChild: picture }] = made.children;
  head.append(title, el("small", { textContent: whose }));
  now.append(...lines.map(() => el("span")));
  lines[1] ?? picture.lastElementChild.remove();
  return made;
}

/** Today and the days before it; the answer lacks days on which nothing ended. */
function days({ at, days: ended }) {
  const today = at - at % 86400e3, none = { done: 0, errors: 0 };
  return Array.from({ length: DAYS }, (_, place) => today - (DAYS - 1 - place) * 86400e3).map((day) => ({ ...none, ...ended.find(({ at }) => at === day), at: day }));
}

/** Draws points [{at, ...}], the oldest first; a line has a gap where a value or some points are missing. */
function drawChart(chart, [title, , lines, least], points, shown, step) {
  const [, now, { children: [top, picture] }, ends] = chart.children, last = points.at(-1)?.at;
  const most = Math.max(least, ...lines.flatMap(([, , name]) => points.map((point) => point[name])).filter(Number.isFinite));
  const power = 10 ** Math.floor(Math.log10(most) + 1e-9), scale = power * [1, 2, 5, 10].find((times) => times * power >= most * 0.999);
  say(top, lines[0][1](scale));
  say(ends.firstElementChild, span(shown) + " ago");
  say(ends.lastElementChild, step === 86400e3 ? "today" : "now");
  lines.forEach(([name, write, key], line) => {
    let path = "", before = null;
    for (const { at, [key]: value } of points) {
      if (value != null) { path += (at - before > 3 * step ? "M" : "L") + (1000 - 1000 * (last - at) / shown).toFixed(1) + " " + (100 - 97 * value / scale).toFixed(1); }
      before = value == null ? null : at;
    }
    picture.children[line].setAttribute("d", path.replace(/^L/, "M"));
    say(now.children[line], name + " " + write(points.at(-1)?.[key]));
  });
  picture.setAttribute("aria-label", title + ": " + [...now.children].map((words) => words.textContent).join(", "));
}

/** The points that are new since the last time; the daemon keeps an hour of them. */
async function readHistory(queue) {
  const { names, points, every_ms: every } = await get("history", { queue, since: state.history.at(-1)?.at });
  if (queue !== state.queue) { return; }
  const all = [...state.history, ...points.map((point) => Object.fromEntries(names.map((name, index) => [name, point[index]])))];
  state.history = all.filter(({ at }) => at > all.at(-1).at - HISTORY_MS[1]);
  Object.assign(state, { every, historyAt: Date.now() });
}

/** Asks for the live numbers, and draws them: once a second, while the page is visible. */
async function look() {
  clearTimeout(look.timer);
  if (look.asks || document.hidden) { return; }
  look.asks = true;
  try {
    const { section } = state, overview = section === "overview";
    if (!state.queues || section === "queues" || state.looked++ % WHOLE_LOOKS === 0) {
      const { queues, left_out: leftOut } = await get("queues");
      Object.assign(state, { queues, leftOut });
      if (!state.queue) { choose(queues[0].queue); }
      if (section === "queues") { drawQueues(); }
    }
    const { queues: [queue] } = await get("queues", { queue: state.queue });
    const [workers, text] = await Promise.all([section === "workers" && get("workers", { queue: queue.queue }), overview && call("/metrics"),
      overview && queue.served && Date.now() - state.historyAt >= state.every && readHistory(queue.queue)]);
    if (queue.queue !== state.queue) { throw refusal(0, ""); } // another queue was chosen meanwhile
    const now = { queue, workers: workers && workers.queues[0].workers, metrics: text && parse(text, queue.queue), at: Date.now() };
    if (now.at - state.looks.at(-1)?.at > 10 * EVERY_MS) { state.looks = []; } // the page was hidden
    state.looks = [...state.looks, now].slice(-RATE_LOOKS - 1);
    state.read = now.at;
    trouble(null);
    draw(now);
  } catch (error) {
    if (error.message) { trouble(error); }
    if (error.status === undefined) { console.error(error); } // an error in this file
    if (error.status === 403 && state.queues) { drawSelect(state.queue); } // the login may not read this queue
    if (error.status === 404) { Object.assign(state, { queue: null, queues: null }); } // the queue's last stream has gone
    if (error.status === 401 && !$("ask").open && !look.declined) { look.declined = !await sign("This daemon shows nothing without its token. "); }
  }
  look.asks = false;
  look.timer = setTimeout(look, EVERY_MS);
}

/** Shows one banner for everything that cannot be read; earlier values stay, faint, and nothing of them can be pressed. */
function trouble(error) {
  const away = error && [0, 503, 504].includes(error.status), silent = error?.status === 0;
  state.away = Boolean(away);
  document.body.classList.toggle("away", state.away);
  $("main").inert = state.away;
  $("main").hidden = Boolean(error) && state.looks.length === 0 && state.section !== "queues";
  say($("trouble"), !error ? "" : !away ? error.message : (silent ? "The daemon does not answer." : "Redis is away: " + error.message.replace(/\.?$/, "."))
    + (state.read ? " The numbers are those of " + clock(state.read).slice(11) + "." : "") + " The page goes on by itself.");
  if (error) { badge($("state"), silent ? "daemon away" : away ? "Redis away" : "unknown", "bad"); }
  if (away) { say($("told"), ""); }
}

function drawSelect(chosen) {
  keep($("queue"), [...new Set([...state.queues.map(({ queue }) => queue), chosen])], (name) => name, (name) => el("option", { textContent: name }));
  $("queue").value = chosen;
}

function draw(now = state.looks.at(-1)) {
  if (!now) { return; }
  const { queue } = now;
  drawSelect(queue.queue);
  badge($("state"), ...stateOf(queue));
  document.title = queue.queue + (queue.paused ? " (paused)" : "") + " – Sluice";
  say($("count-workers"), count(queue.workers));
  say($("count-dead"), queue.dead ? count(queue.dead) : "");
  say($("count-later"), queue.later ? count(queue.later) : "");
  say($("dead-bytes"), bytes(queue.dead_bytes) + " of Redis’ memory");
  $("count-dead").classList.toggle("bad", queue.dead > 0);
  ({ overview: drawOverview, queues: drawQueues, workers: drawWorkers, try: drawTry })[state.section]?.(now);
  if (LISTS[state.section]) { drawList(now); }
}

function drawOverview({ queue, metrics, at }) {
  const waits = CLASSES.map((name) => queue.classes[name].wait_ms), { history } = state;
  pairs($("totals"), [["Done", count(inEnds(queue, "done"))], ["Errors", count(inEnds(queue, "errors"))], ["Unread", count(inClasses(queue, "unread"))],
    ["Running", count(inClasses(queue, "pending"))], ["Wait", waits.includes(null) ? "unknown" : span(Math.max(...waits))], ["Later", count(queue.later)],
    ["Dead letters", count(queue.dead), queue.dead > 0 ? "bad" : ""], ["Workers", count(queue.workers), queue.workers === 0 ? "bad" : ""]]);
  say($("paused"), pausedWords(queue) || "");
  const shown = history.length > 0 ? Math.min(HISTORY_MS[1], Math.max(HISTORY_MS[0], history.at(-1).at - history[0].at)) : HISTORY_MS[0];
  keep($("charts"), [...queue.served ? CHARTS : [], BY_DAY], ([title, , lines]) => title + lines[0][0], makeChart, (chart, row) =>
    row === BY_DAY ? drawChart(chart, row, days(queue), (DAYS - 1) * 86400e3, 86400e3) : drawChart(chart, row, history, shown, state.every));
  $("daemon-head").hidden = $("daemon").hidden = !queue.served;
  $("foreign").hidden = queue.served;
  if (!queue.served || !metrics) { return; }
  const of = (name) => metrics[name] ? sum(metrics[name].map((sample) => sample.value)) : null;
  const info = metrics.sluice_worker_info?.[0].labels ?? {}, limit = of("sluice_redis_memory_limit_bytes");
  const predicted = ratio(of("sluice_batch_predicted_seconds_total"), of("sluice_batch_seconds_total"));
  const script = ratio(of("sluice_redis_script_seconds_total"), of("sluice_redis_script_calls_total"));
  const mean = (name) => ratio(of(`sluice_generate_${name}_seconds_sum`), of(`sluice_generate_${name}_seconds_count`));
  const blocks = of("sluice_generate_kv_blocks"), first = mean("first_token"), next = mean("inter_token");
  const gpus = (metrics.sluice_gpu_busy_ratio ?? []).map(({ labels, value }) => "GPU " + labels.gpu + " " + share(value) + " busy");
  pairs($("daemon"), [
    ["Program", joined("Sluice " + metrics.sluice_build_info[0].labels.version, "runs for " + span(at - 1000 * of("process_start_time_seconds")))],
    ["Model", joined(queue.model, info.revision, info.precision)],
    ["Engine", joined(info.backend, many(of("sluice_engine_threads"), "batch", "batches") + " at a time", predicted && "predicted time " + share(predicted) + " of real", ...gpus)],
    ...blocks ? [["Texts", joined(count(of("sluice_generate_running")) + " written now", count(of("sluice_generate_waiting")) + " wait for room",
      share(of("sluice_generate_kv_blocks_used") / blocks) + " of the pool", first && "first token after " + seconds(first), next && "next ones after " + seconds(next))]] : [],
    ["Memory", joined(bytes(of("process_resident_memory_bytes")), "CPU time " + seconds(of("process_cpu_seconds_total")))],
    ["Redis", joined(bytes(of("sluice_redis_memory_bytes")) + (limit > 0 ? " of " + bytes(limit) : ", no maxmemory"),
      "connected " + many(of("sluice_redis_connects_total"), "time"), script && "a script call takes " + seconds(script))]]);
}

/* ---- queues ---- */
function makeQueue({ queue }) {
  const form = el("form", { className: "actions caps", oninput: () => { form.dataset.edited = "yes"; } }, ...[...CLASSES, "later"].map((name) =>
    el("label", {}, "Cap " + name, el("input", { name, type: "number", min: 0, placeholder: "none" }))), el("button", { textContent: "Set caps" }));
  submits(form, async (fields) => {
    await post("caps", { queue, ...Object.fromEntries([...CLASSES, "later"].map((name) => [name, Number(fields[name].value)])) });
    delete form.dataset.edited;
    return "The caps of " + queue + " are set.";
  });
  const toggle = button("Pause", async (pressed) => {
    const what = pressed.textContent, given = what === "Resume" ? [] : await ask("Pause", queue + ": workers finish what they hold, and begin nothing until it is resumed. Requests are still accepted.", "Pause",
      { "For, such as 30m or 2h": { placeholder: "until it is resumed", maxLength: 32 }, Why: { placeholder: "for the other operators" } });
    if (!given) { return ""; }
    const [time, why] = given, { paused } = await post(what.toLowerCase(), { queue, ...time && { for: time }, ...why && { why } });
    return queue + (paused ? " is paused: workers finish what they hold." : " goes on.");
  });
  const heads = ["Class", "Unread", "Running", "Wait", "Oldest", "Above cap", "Done", "Errors"]
    .map((text, index) => el("th", { textContent: text, className: index > 0 ? "n" : "" }));
  return el("article", { className: "card" }, el("header", {}, el("h2", { textContent: queue }), el("span"), el("small"), toggle),
    el("p", { hidden: true }), el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody")), el("small"), form);
}

function drawQueues() {
  keep($("queue-cards"), state.queues, ({ queue }) => queue, makeQueue, (card, queue) => {
    const [head, problem, table, totals, form] = card.children, [, mark, about, toggle] = head.children;
    badge(mark, ...stateOf(queue));
    problem.hidden = !queue.error;
    toggle.hidden = table.hidden = totals.hidden = form.hidden = !problem.hidden;
    say(problem, queue.error ?? "");
    say(about, queue.error ? "" : joined(queue.served ? queue.model : "not served by this daemon", Object.keys(queue.precisions).join(", "), queue.pinned_precision && "pinned to " + queue.pinned_precision,
      queue.workers > 0 ? many(queue.workers, "worker") : "no worker: sluice serve --queue " + queue.queue + " starts one", queue.quiet > 0 && queue.quiet + " quiet", queue.devices_lost > 0 && many(queue.devices_lost, "device") + " lost", queue.reason, pausedWords(queue)));
    if (queue.error) { return; }
    if (!toggle.disabled) { say(toggle, queue.paused ? "Resume" : "Pause"); }
    rows(table.tBodies[0], CLASSES, (name) => name, (name) => {
      const one = queue.classes[name], ends = endsOf(queue.ended[name]);
      return [name, count(one.unread), count(one.pending), one.wait_ms == null ? "unknown" : span(one.wait_ms), span(one.oldest_ms),
        one.cap == null ? "–" : count(one.above_cap), count(ends.done), count(ends.errors)];
    });
    const ends = {};
    for (const [end, times] of CLASSES.flatMap((name) => Object.entries(queue.ended[name]))) { ends[end] = (ends[end] ?? 0) + times; }
    const parts = [...Object.entries(ends).map(([end, times]) => count(times) + " " + end), many(queue.died, "worker") + " died",
      queue.ignored > 0 && many(queue.ignored, "request") + " had unknown fields"];
    say(totals, queue.since ? "Since " + clock(queue.since) + ": " + joined(...parts) : "");
    const caps = { ...queue.classes, later: { cap: queue.cap_later } };
    for (const input of form.dataset.edited ? [] : form.querySelectorAll("input")) { input.value = caps[input.name].cap ?? ""; }
  });
  say($("left-out"), state.leftOut ?? "");
}

/* ---- workers ---- */
async function order(all, what) {
  if (all.length === 0) { return "No worker is alive."; }
  const { queue } = state, whom = all.length === 1 ? all[0].worker : "All " + many(all.length, "worker");
  const means = { drain: ["Drain", "finish the batches, give the rest back, exit."], stop: ["Stop", "exit at once; others take over what was held."] }[what];
  if (means && !await ask(means[0], whom + ": " + means[1], means[0])) { return ""; }
  for (const { worker } of all) { await post("worker", { queue, worker, order: what }); }
  return whom + ": " + what + ", with the next heartbeat.";
}

function drawWorkers(now) {
  if (!now.workers) { return; } // this look was for another section
  const was = state.looks.find(({ workers }) => workers);
  rows($("worker-rows"), now.workers, ({ worker }) => worker, (worker) => {
    const all = worked(now, was, worker), is = worker.alive ? worker.state : "dead";
    const per = (name) => human(ratio(all[name] * 1000, all.ms));
    const mark = badge(el("span"), is + (worker.ordered ? " → " + worker.ordered : ""), { running: "good", dead: "bad" }[is] ?? "odd");
    return [mono(worker.worker), mark, count(worker.held), count(worker.waiting), per("done"), per("errors"), human(all.texts), share(all.padding),
      joined(worker.precision, worker.devices_lost > 0 && many(worker.devices_lost, "device") + " lost", worker.reason), span(worker.spoke_ms_ago)];
  }, (worker) => ["Quiet", "Drain", "Stop"].map((text) => button(text, (pressed) => order([worker], pressed.textContent.toLowerCase()))));
  now.workers.forEach((worker, index) => {
    const cell = $("worker-rows").rows[index].lastChild;
    cell.hidden = !worker.alive;
    if (!cell.firstChild.disabled) { say(cell.firstChild, worker.state === "quiet" ? "Resume" : "Quiet"); }
  });
  $("at-workers").querySelector(".empty").hidden = now.workers.some((worker) => worker.alive);
}

/* ---- lists: dead letters, later, requests ---- */
const cancel = ({ request }) => [button("Cancel", async () => {
  if (!await ask("Cancel", request + ": it ends as cancelled.", "Cancel it")) { return ""; }
  await post("cancel", { id: request });
  return request + ": asked to cancel.";
}, "danger")];

/** Each list: its path, its form's fields, a mark that changes when it has to be read again, an item's key, its cells and buttons. */
const LISTS = {
  dead: { path: "dead", mark: (queue) => queue.dead, key: "letter",
    cells: ({ letter, code, entry, id, tenant, attempts, message }) =>
      [clock(parseInt(letter, 10)), code ?? "", link(entry ?? ""), id ?? "", tenant ?? "", count(attempts), message ?? ""],
    buttons: ({ letter }) => [button("Show", () => showLetter(letter)), button("Requeue", () => settle("requeue", letter)),
      button("Delete", () => settle("delete", letter), "danger")] },
  later: { path: "later", mark: (queue) => queue.later, key: "request", buttons: cancel,
    cells: ({ request, class: level, due_at: due, id }, now) => [clock(due), due > now ? span(due - now) : "due", level, link(request), id ?? ""] },
  request: { path: "requests", asked: () => Object.fromEntries(new FormData($("request-list"))), key: "request", buttons: cancel,
    mark: ({ at, classes, ended }, { class: name }) => // the oldest one's arrival, because its age changes with each look
      JSON.stringify([{ ...classes[name], wait_ms: 0, oldest_ms: classes[name].oldest_ms && at - classes[name].oldest_ms }, ended[name]]),
    cells: ({ request, worker, since, id, tenant, bytes: size, text, seen }, now, more) =>
      [link(request), clock(since), span(Math.max(0, (more ? seen : now) - since)), mono(worker ?? ""), id ?? "", tenant ?? "", bytes(size), text] },
};

/** Reads a list from its beginning, or its next items (`more`). A search may look at many letters before it finds one. */
async function load(section, more = false, asked = state.lists[section]?.asked ?? LISTS[section].asked?.()) {
  const { queue, lists, looks } = state, old = more && lists[section] || { items: [], next: null }, { path, mark } = LISTS[section], began = performance.now();
  const list = { more, asked, mark: looks.length > 0 && mark(looks.at(-1).queue, asked), items: [...old.items], next: old.next };
  lists.newest = list; // a list that is asked for meanwhile replaces this one
  try {
    for (let calls = 0; calls < 50 && list.items.length === old.items.length && (calls === 0 || list.next); calls++) {
      const answer = await get(path, { queue, ...asked, cursor: list.next });
      list.items.push(...(answer.letters ?? answer.requests).map((item) => ({ ...item, seen: answer.at })));
      Object.assign(list, { next: answer.next, at: answer.at ?? 0, rests: performance.now() + 10 * (performance.now() - began) });
    }
    if (lists.newest === list) { lists[section] = list; }
  } finally {
    if (lists.newest === list) { lists.newest = null; }
  }
}

function drawList(now) {
  const { section } = state, list = state.lists[section], page = $("at-" + section), { mark, key, cells, buttons } = LISTS[section];
  const stale = !state.away && (!list || (!list.more && performance.now() > list.rests && list.mark !== mark(now.queue, list.asked))); // reading a long list again would lose the place in it
  if (stale && !state.lists.newest) { load(section).then(() => draw(), (error) => tell(error.message, true)); }
  if (!list) { return; }
  rows($(section + "-rows"), list.items, (item) => item[key], (item) => cells(item, Math.max(now.queue.at, list.at), list.more), buttons);
  if (section === "request") { say($("request-at"), list.more ? "as of " + clock(list.items[0]?.seen ?? list.at).slice(11) : ""); }
  if (section === "dead") { drawDead(now.queue, list); }
  page.querySelector(".empty").hidden = list.items.length > 0;
  page.querySelector(".more").hidden = !list.next;
}

/** Writes the number of letters on the buttons for all of them. */
function drawDead({ dead }, list) {
  const found = list.asked?.search ? list.items.length : dead, all = count(found) + (list.asked?.search && list.next ? "+" : "");
  for (const [what, text] of [["requeue", "Requeue all"], ["delete", "Delete all"]]) {
    $(what + "-all").hidden = found === 0;
    say($(what + "-all"), text + " (" + all + ")");
  }
}

async function showLetter(letter) {
  const { fields, age_ms: age } = await get("dead", { queue: state.queue, letter });
  say($("letter-title"), "Dead letter " + letter + ", " + span(age) + " old");
  $("letter-fields").replaceChildren(...fields.map(({ name, value, bytes: size }) => pair(name, value + (size > 16384 ? "\n… " + bytes(size) + " in all" : ""))));
  $("letter").showModal();
}

/** Requeues or deletes a letter, or all that the search finds. */
async function settle(what, letter) {
  const { queue } = state, search = state.lists.dead?.asked?.search, [verb, means] = { delete: ["Delete", "gone for good."], requeue: ["Requeue", "submitted again."] }[what];
  const which = letter ? "Dead letter " + letter : search ? "All dead letters with “" + search + "” in them" : "All dead letters";
  if ((!letter || what === "delete") && !await ask(verb, which + ": " + means, verb)) { return ""; }
  let done = 0, kept = 0, next = null;
  do {
    const answer = await post("dead/" + what, letter ? { queue, letter } : { queue, all: true, ...search && { search }, ...next && { cursor: next } });
    done += answer.requeued ?? answer.deleted;
    kept += answer.kept ?? 0;
    next = answer.next;
  } while (next);
  await load("dead");
  return count(done) + " " + verb.toLowerCase() + "d" + (kept > 0 ? "; " + count(kept) + " kept: no whole request" : "") + ".";
}

/* ---- one request ---- */
async function showRequest(id) {
  const { queue } = state, [story, reply] = await Promise.all([get("story", { queue, id }), get("request", { queue, id })]);
  const steps = story.events.map(({ at, event, text }) =>
    el("li", {}, el("time", { textContent: clock(at) + "." + String(at % 1000).padStart(3, "0") }), " ", el("b", { textContent: event }), " " + text));
  const kind = { done: "good", error: "bad", dead: "bad" }[story.status] ?? "odd";
  const letter = story.letter && !story.letter_gone ? [button("Show the dead letter", () => showLetter(story.letter))] : [];
  const none = story.status === "unknown" ? ["No more is known: its reply has expired or is under its own id, or it was never enqueued."] : [];
  const { info, ...found } = reply, fields = info ? Object.entries({ ...found, ...info }).map(([name, value]) => pair(name, value instanceof Object ? JSON.stringify(value).slice(0, 2000) : value)) : [];
  $("request-found").replaceChildren(el("h2", {}, el("code", { textContent: id }), " ", badge(el("span"), story.status, kind)),
    el("ol", { className: "story" }, ...steps), ...none, ...letter, el("h2", { textContent: "Reply", hidden: !info }), el("dl", { className: "facts" }, ...fields));
}

/* ---- try it ---- */
/** For each task of a model: the labels of the fields, and of the button. */
const TASKS = { embed: ["Text", "Lines to compare it with, if you like", "Embed"], rerank: ["Query", "Texts to put in order, one a line", "Rerank"], classify: ["Text", "", "Classify"] };

const taskOf = ({ tasks }) => Object.keys(TASKS).find((task) => tasks?.includes(task));

function drawTry({ queue }) {
  const form = $("try-form"), task = taskOf(queue), { text, lines } = form.elements;
  $("try-foreign").hidden = Boolean(task);
  form.hidden = !task;
  if (!task || form.dataset.task === task) { return; }
  form.dataset.task = task;
  const [first, second, verb] = TASKS[task];
  say(text.previousElementSibling, first);
  say(lines.previousElementSibling, second);
  lines.parentNode.hidden = second === "";
  lines.required = task === "rerank";
  form.oninput = () => { text.required = task !== "embed" || lines.value.trim() === ""; }; // the first line will do
  form.oninput();
  say(form.querySelector("button"), verb);
}

/** Draws lines with a number from 0 to 1 each, the largest first. */
const ranked = (lines) => el("ol", { className: "near" }, ...lines.sort((a, b) => b[1] - a[1]).map(([line, value]) =>
  el("li", {}, el("meter", { value: Math.max(0, value), ariaLabel: "of 1" }), el("b", { textContent: value.toFixed(3) }), " " + line)));

async function tryIt({ text, lines }) {
  const task = taskOf(state.looks.at(-1).queue), others = lines.value.split("\n").filter((line) => line.trim() !== "");
  const first = text.value.trim() === "" && task === "embed" ? others.shift() : text.value;
  const body = { embed: { inputs: [first, ...others] }, rerank: { query: text.value, inputs: others }, classify: { inputs: [text.value] } }[task];
  let reply = await post("try", { task, ...body });
  for (let waited = 0; ["queued", "running", "later"].includes(reply.status) && waited < 60; waited++) {
    await new Promise((wake) => { setTimeout(wake, 500); });
    reply = await get("request", { queue: state.queue, id: reply.id });
  }
  if (reply.status !== "done") { throw new Error(reply.code ? reply.code + ": " + reply.message : reply.id + " is " + reply.status + "."); }
  const times = (...words) => el("p", {}, joined(...words, "waited " + span(reply.info.queued_ms), "computed in " + span(reply.info.compute_ms)), " · request ", link(reply.info.entry));
  $("try-found").replaceChildren(...{
    rerank: () => [el("h2", { textContent: "The best first" }), ranked(reply.scores.map((score, index) => [others[index], score])), times()],
    classify: () => [el("h2", { textContent: "Labels" }), ranked(reply.labels.flat().map(({ label, score }) => [label, score])), times()],
    embed: () => {
      const dot = (a, b) => sum(a.map((number, index) => number * b[index])), [vector, ...vectors] = reply.embedding;
      const near = vectors.map((one, index) => [others[index], dot(vector, one) / Math.sqrt(dot(vector, vector) * dot(one, one))]);
      return [el("h2", { textContent: "Nearest, by cosine", hidden: near.length === 0 }), ranked(near), el("h2", { textContent: "Vector" }),
        times(vector.length + " numbers", "length " + Math.sqrt(dot(vector, vector)).toFixed(3)), el("pre", { className: "vector", tabIndex: 0, ariaLabel: "The numbers", textContent: vector.join(", ") })];
    } }[task]());
}

/* ---- the page's address ---- */
function go(byUser) {
  const [, name, rest] = /^#?(\w*)\/?(.*)$/.exec(location.hash), links = [...document.querySelectorAll("nav a")];
  state.section = (links.find((one) => one.hash === "#" + name) ?? links[0]).hash.slice(1);
  for (const one of links) {
    one.ariaCurrent = one.hash === "#" + state.section ? "page" : null;
    $("at-" + one.hash.slice(1)).hidden = !one.ariaCurrent;
  }
  if (byUser) {
    $("at-" + state.section).querySelector("h1").focus({ preventScroll: true });
    window.scrollTo(0, 0);
    look();
  }
  draw();
  if (state.section === "request" && rest && state.queue) {
    const { elements, lastElementChild } = $("request-form");
    run(lastElementChild, () => showRequest(elements.id.value = decodeURIComponent(rest)));
  }
}

/** Sets a form's action, which runs in place of sending it. */
function submits(form, act) {
  form.onsubmit = (event) => {
    event.preventDefault();
    run(form.querySelector("button"), () => act(form.elements));
  };
}

document.querySelectorAll("#at-workers .actions button").forEach((one) => {
  one.onclick = () => run(one, () => order((state.looks.at(-1)?.workers || []).filter((worker) => worker.alive), one.textContent.split(" ")[0].toLowerCase()));
});
document.querySelectorAll(".more").forEach((one) => { one.onclick = () => run(one, () => load(state.section, true)); });
$("queue").onchange = (event) => run(event.target, () => { choose(event.target.value); });
$("sign").onclick = (event) => run(event.currentTarget, async () => {
  if (token()) { setToken(""); } else if (await sign()) { await get("queues"); }
});
for (const what of ["requeue", "delete"]) { $(what + "-all").onclick = (event) => run(event.currentTarget, () => settle(what)); }
submits($("dead-search"), ({ search }) => load("dead", false, { search: search.value }));
$("request-list").onchange = ({ currentTarget: form }) => run(form, () => load("request", false, LISTS.request.asked()));
submits($("try-form"), tryIt);
submits($("request-form"), ({ id }) => {
  history.pushState(null, "", "#request/" + encodeURIComponent(id.value.trim()));
  go();
});
window.onhashchange = () => go(true);
document.onvisibilitychange = look;
setToken(token());
choose(sessionStorage.getItem("queue"));
look();
