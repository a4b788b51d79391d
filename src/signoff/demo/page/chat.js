// The page: one conversation at a time, its running answer, and what a person does with them.

import { remaining } from "./cards.js";
import { h } from "./dom.js";
import { flat, messagesOf, nest, partOfCard, Turn } from "./turn.js";
import { drawInbox, drawMessages, drawThreads } from "./view.js";
import { blocks, Refused, Wire } from "./wire.js";

const IDEAS = [
  "hello",
  "weather in Lisbon",
  "purge homepage",
  "refund A-1001",
  "delete ann",
  "transfer 50",
  "research bees",
  "start bees",
  "ask me",
  "slow",
  "boom",
];
const INBOX = "inbox";
const RETRY_MS = [300, 600, 1200, 2500];

const $ = (id) => document.getElementById(id);
const me = readIdentity();
const wire = new Wire("/agent", () => ({ "x-actor-id": me.id, "x-actor-role": me.role }));

/**
 * What is on the screen: a thread, an empty one (`threadId` null), or with `inbox` not null the cards in it.
 * `background` are runs of detached sub-agents by id; one that is over has left its answer in the stored thread, which
 * is read again as soon as no turn stands in the way (`stale`). `reading` ends the reading of streams, never the runs.
 */
const page = { threads: [], ...emptied() };

function emptied() {
  return { threadId: null, title: "", messages: [], turn: null, background: new Map(), stale: false, inbox: null, reading: new AbortController() };
}

// --- who acts -------------------------------------------------------------------------------------------------

function readIdentity() {
  const stored = JSON.parse(localStorage.getItem("signoff.identity") ?? "null");
  return stored ?? { id: `guest-${randomId().slice(0, 4)}`, role: "USER" };
}

function keepIdentity() {
  localStorage.setItem("signoff.identity", JSON.stringify(me));
}

function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// --- drawing --------------------------------------------------------------------------------------------------

let drawing = false;

/** Draw once before the next paint, however often it is asked. */
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    drawNow();
  });
}

function drawNow() {
  const { turn } = page;
  const scroll = $("scroll");
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
  const live = turn ? [{ key: turn.key, role: "assistant", parts: turn.parts(), streaming: true }] : [];
  const background = [...page.background.values()].flatMap((run) => (run.over ? [] : run.parts()));
  const messages = nest([...page.messages, ...live], background);
  drawMessages($("log"), messages, { me, decide });
  drawThreads($("threads"), page.threads, page.threadId, open);
  drawInbox($("cards"), page.inbox ?? [], { me, decide });
  const waiting = flat(messages.flatMap((message) => message.parts)).filter((part) => part.state === "waiting").length;
  const inbox = page.inbox !== null;
  $("welcome").hidden = inbox || page.messages.length > 0 || turn !== null || page.threadId !== null;
  $("inbox").hidden = !inbox;
  $("empty").hidden = !inbox || page.inbox.length > 0;
  $("composer").hidden = inbox;
  $("waiting").ariaCurrent = inbox ? "page" : null;
  $("title").textContent = inbox ? "Waiting for a decision" : page.title || "New conversation";
  $("delete").hidden = page.threadId === null;
  $("stop").hidden = turn === null;
  $("send").hidden = turn !== null;
  $("log").ariaBusy = String(turn !== null && waiting === 0);
  $("status").textContent = waiting > 0 ? "Waiting for your decision." : turn ? "Answering." : page.messages.length > 0 ? "Ready." : "";
  if (atEnd && !inbox) scroll.scrollTop = scroll.scrollHeight;
}

function say(problem) {
  $("problem").textContent = problem;
}

function connection(text) {
  $("connection").textContent = text;
}

// --- talking to the server ------------------------------------------------------------------------------------

/** Wait; ends early, by throwing, when the reading is given up. */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** Do `attempt` until the server gives an answer, be it a refusal; a server that is away is waited for. */
async function persist(signal, attempt) {
  for (let tries = 0; ; tries += 1) {
    try {
      const result = await attempt();
      connection("");
      return result;
    } catch (error) {
      if (signal.aborted || (error instanceof Refused && !error.isPassing)) throw error;
      connection("reconnecting…");
      await pause(RETRY_MS[Math.min(tries, RETRY_MS.length - 1)], signal);
    }
  }
}

async function readThreads() {
  const { signal } = page.reading;
  page.threads = await persist(signal, () => wire.json("GET", "/threads", undefined, { signal }));
  draw();
}

/** Take in the stored thread; where a run holds it, go on with that run's stream. */
async function readThread() {
  const { threadId, turn } = page;
  const { signal } = page.reading;
  const thread = await persist(signal, () => wire.json("GET", `/threads/${threadId}`, undefined, { signal }));
  if (page.turn !== turn) return; // a message was sent meanwhile: its stream tells the rest
  page.title = thread.title;
  page.messages = messagesOf(thread.messages);
  page.turn = null;
  page.stale = false;
  if (thread.activeRunId) {
    // The stream tells the running answer from its first frame; its stored rows would show it twice.
    const asked = page.messages.findLastIndex((message) => message.role === "user");
    page.messages.length = asked + 1;
    page.turn = newTurn(thread.activeRunId);
  }
  draw();
  followBackground();
  if (page.turn) await followRun(page.turn);
}

/** Read what detached sub-agents do whose answers are not in the thread yet. */
function followBackground() {
  const arrived = new Set(page.messages.map((message) => message.runId));
  for (const { output } of page.messages.flatMap((message) => message.parts)) {
    const runId = output?.started === true && output.runId;
    if (!runId || arrived.has(runId) || page.background.has(runId)) continue;
    const run = newTurn(runId);
    page.background.set(runId, run);
    visibly(() => followDetached(run));
  }
}

async function followDetached(run) {
  await follow(run);
  run.over = true;
  page.stale = true;
  await refresh();
}

/** Read again what is on the screen. A running answer is left to its stream, and so is the word on how one ended. */
async function refresh() {
  if (page.inbox !== null) return readInbox();
  if (page.threadId !== null && !page.turn && !page.messages.at(-1)?.ending) return readThread();
}

/** The open cards that this person may see. */
async function readInbox() {
  const { signal } = page.reading;
  const path = me.role === "ADMIN" ? "/approvals" : "/approvals/mine";
  const cards = await persist(signal, () => wire.json("GET", path, undefined, { signal }));
  page.inbox = (Array.isArray(cards) ? cards : cards.items).map(partOfCard);
  draw();
}

function newTurn(runId) {
  const turn = new Turn(runId);
  turn.key = `turn-${randomId()}`;
  return turn;
}

/** Read the turn that is on the screen to its end; see `follow`. */
async function followRun(turn, first) {
  if (await follow(turn, first)) settle(turn);
  else await readThread(); // it has ended: what is stored is the truth now
}

/**
 * Read a run to its end, over as many connections as it takes.
 * @param first  opens the first connection; later ones attach behind the last frame that was read
 * @returns false where there is nothing to attach to any more
 */
async function follow(turn, first) {
  const { signal } = page.reading;
  let connect = first ?? (() => attach(turn, signal));
  for (;;) {
    let response;
    try {
      response = await persist(signal, connect);
    } catch (error) {
      if (!(turn.runId && error instanceof Refused && error.status === 404)) throw error;
      if (error.code !== "stream_reset") return false;
      turn.reset();
      connect = () => attach(turn, signal);
      continue;
    }
    await read(turn, response, signal);
    if (turn.ending) return true;
    connection("reconnecting…");
    await pause(RETRY_MS[0], signal);
    if (turn.runId) connect = () => attach(turn, signal);
  }
}

function attach(turn, signal) {
  const after = turn.cursor > 0 ? `?after=${turn.cursor}` : "";
  return wire.request("GET", `/chat/${turn.runId}/stream${after}`, { signal });
}

/** Read one connection until it ends; a broken one ends like one that was closed. */
async function read(turn, response, signal) {
  try {
    for await (const { event, seq, data } of blocks(response)) {
      if (event === "meta" && turn === page.turn) begin(turn, data);
      else if (event === "done") turn.end({ kind: "done" });
      else if (event === "error") turn.end({ kind: "error", message: data.message });
      else if (event === "message" && data.kind === "title") retitle(turn, seq, data);
      else if (event === "message") turn.take(seq, data);
      draw();
    }
  } catch (error) {
    if (signal.aborted) throw error;
  }
}

function begin(turn, { runId, threadId }) {
  turn.runId = runId;
  if (page.threadId === threadId) return;
  page.threadId = threadId;
  history.replaceState(null, "", `#${threadId}`);
  refreshThreads();
}

function retitle(turn, seq, frame) {
  turn.take(seq, frame);
  page.title = frame.title;
  refreshThreads();
}

function settle(turn) {
  const parts = turn.parts();
  const ending = turn.ending.kind === "done" ? undefined : turn.ending;
  if (parts.length > 0 || ending) page.messages.push({ key: turn.key, role: "assistant", parts, ending });
  page.turn = null;
  draw();
  refreshThreads();
  if (page.stale) visibly(refresh);
  else followBackground();
}

/** Run something whose failure a person should read; giving up the reading is no failure. */
async function visibly(work) {
  const { signal } = page.reading;
  try {
    await work();
  } catch (error) {
    if (signal.aborted) return;
    connection("");
    say(error.message);
    draw();
  }
}

const refreshThreads = () => visibly(readThreads);

// --- what a person does ---------------------------------------------------------------------------------------

async function send(message) {
  say("");
  const key = randomId();
  const turn = newTurn();
  const body = { message, ...(page.threadId && { threadId: page.threadId }) };
  const { signal } = page.reading;
  page.messages.push({ key: `user-${key}`, role: "user", parts: [{ type: "text", key: "text", text: message }] });
  page.title ||= message.slice(0, 60);
  page.turn = turn;
  draw();
  $("scroll").scrollTop = $("scroll").scrollHeight;
  try {
    // One key for all tries: a request that was heard although nobody answered starts no second run.
    await followRun(turn, () => wire.request("POST", "/chat", { body, signal, headers: { "idempotency-key": key } }));
  } catch (error) {
    if (!turn.runId && !signal.aborted) takeBack(message, turn);
    throw error;
  }
}

/** The server did not take the message: give it back to the person who wrote it. */
function takeBack(message, turn) {
  if (page.turn !== turn) return;
  page.turn = null;
  page.messages.pop();
  if (page.threadId === null) page.title = "";
  if (!$("message").value) $("message").value = message;
}

async function decide(toolCallId, verb, body) {
  await wire.json("POST", `/tool-call/${verb}`, { toolCallId, ...body });
  if (page.inbox !== null) visibly(readInbox);
}

async function stop() {
  const { turn } = page;
  if (!turn?.runId) return;
  await wire.json("POST", `/chat/${turn.runId}/cancel`).catch((error) => {
    // Already over: its stream says so.
    if (!(error instanceof Refused && error.status === 404)) throw error;
  });
}

/** Leave what is on the screen and show a thread, the inbox, or with null an empty page. */
function open(place) {
  const threadId = place === INBOX ? null : place;
  page.reading.abort();
  Object.assign(page, emptied(), { threadId, inbox: place === INBOX ? [] : null });
  history.replaceState(null, "", place ? `#${place}` : location.pathname);
  connection("");
  say("");
  showSidebar(false);
  $("scroll").scrollTop = 0;
  draw();
  if (place) visibly(refresh);
  else $("message").focus();
}

/** What is on the screen, as `open` takes it. */
function place() {
  return page.inbox === null ? page.threadId : INBOX;
}

async function remove() {
  if (!confirm("Delete this conversation?")) return;
  await wire.json("DELETE", `/threads/${page.threadId}`);
  open(null);
  await readThreads();
}

function showSidebar(shown) {
  document.body.classList.toggle("sidebar", shown);
  $("menu").ariaExpanded = String(shown);
}

// --- wiring ---------------------------------------------------------------------------------------------------

function submit(event) {
  event?.preventDefault();
  const message = $("message").value.trim();
  if (!message || page.turn) return;
  $("message").value = "";
  fit();
  visibly(() => send(message));
}

/** Let the message box grow with what is typed. */
function fit() {
  const box = $("message");
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight, 200)}px`;
}

function start() {
  keepIdentity();
  const identity = $("identity");
  identity.elements.id.value = me.id;
  identity.elements.role.value = me.role;
  identity.addEventListener("submit", (event) => event.preventDefault());
  identity.addEventListener("change", () => {
    const id = identity.elements.id.value.trim();
    const somebodyElse = id !== me.id;
    if (!id) return;
    Object.assign(me, { id, role: identity.elements.role.value });
    keepIdentity();
    open(place() === INBOX || !somebodyElse ? place() : null);
    refreshThreads();
  });

  $("ideas").append(...IDEAS.map((idea) => h("li", {}, h("button", { type: "button", onclick: () => (($("message").value = idea), submit()) }, idea))));
  $("composer").addEventListener("submit", submit);
  $("message").addEventListener("input", fit);
  $("message").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  });
  $("stop").addEventListener("click", () => visibly(stop));
  $("new").addEventListener("click", () => open(null));
  $("delete").addEventListener("click", () => visibly(remove));
  $("menu").addEventListener("click", () => showSidebar(!document.body.classList.contains("sidebar")));
  document.addEventListener("keydown", (event) => event.key === "Escape" && showSidebar(false));
  $("waiting").addEventListener("click", () => open(INBOX));
  window.addEventListener("hashchange", () => location.hash.slice(1) !== (place() ?? "") && open(location.hash.slice(1) || null));
  window.addEventListener("focus", () => visibly(refresh));
  setInterval(() => {
    for (const time of document.querySelectorAll("[data-deadline]")) time.textContent = remaining(time.dataset.deadline, Date.now());
  }, 1000);

  open(location.hash.slice(1) || null);
  refreshThreads();
}

start();
