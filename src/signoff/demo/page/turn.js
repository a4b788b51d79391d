// What a person sees of an answer, as plain values: from the frames of a live run, or from stored rows.
//
// A part is a text `{ type, key, text }` or a call
// `{ type, key, id, name, input, parentId, state, output, error, card, questions, decision, nested }` with `state` one
// of "preparing", "running", "waiting" (for a person), "done", "failed", "denied", "expired"; `nested` are the calls of
// the sub-agent that it led to.

/** One run's stream as it arrives. Frames stay, so that a withdrawn range can be taken out again. */
export class Turn {
  constructor(runId) {
    this.runId = runId;
    this.reset();
  }

  reset() {
    this.frames = [];
    this.cursor = 0;
    this.ending = null;
  }

  /** Take one numbered frame. A frame at or below the cursor was seen before. */
  take(seq, frame) {
    if (!(seq > this.cursor)) return;
    this.cursor = seq;
    if (frame.kind === "withdrawn") this.frames = this.frames.filter((taken) => taken.seq < frame.from);
    else this.frames.push({ seq, frame });
  }

  /** `{ kind: "done" | "cancelled" | "error", message? }`; nothing follows. */
  end(ending) {
    this.ending = ending.kind === "done" && this.frames.at(-1)?.frame.kind === "cancelled" ? { kind: "cancelled" } : ending;
  }

  parts() {
    return partsOf(this.frames);
  }
}

export function partsOf(frames) {
  const parts = [];
  const calls = new Map();
  let text;
  for (const { seq, frame } of frames) {
    if (frame.kind === "text") {
      if (!text) parts.push((text = { type: "text", key: `text-${seq}`, text: "" }));
      text.text += frame.text;
    } else if (frame.kind === "step-start") text = undefined;
    else if (frame.kind === "tool-input-start" || frame.kind === "tool-input-available") announce(parts, calls, frame);
    else if (calls.has(frame.id)) follow(calls.get(frame.id), frame);
  }
  return parts;
}

function announce(parts, calls, frame) {
  let call = calls.get(frame.id);
  if (!call) {
    call = { type: "call", key: frame.id, id: frame.id, name: frame.name, parentId: frame.parentId, state: "preparing" };
    calls.set(frame.id, call);
    parts.push(call);
  }
  if (frame.kind === "tool-input-available") Object.assign(call, { input: frame.input, parentId: frame.parentId, state: "running" });
}

function follow(call, frame) {
  switch (frame.kind) {
    case "approval-requested":
      Object.assign(call, { state: "waiting", card: frame, decision: undefined });
      break;
    case "elicitation":
      Object.assign(call, { state: "waiting", questions: frame.request });
      break;
    case "approval-settled":
      call.decision = frame;
      call.state = { approved: "running", rejected: "denied", expired: "expired" }[frame.status] ?? call.state;
      break;
    case "tool-output":
      Object.assign(call, { state: "done", output: frame.output });
      break;
    case "tool-output-error":
      call.error = frame.error;
      if (call.state !== "denied" && call.state !== "expired") call.state = "failed";
      break;
    case "tool-output-denied":
      call.error = frame.reason ?? call.error;
      if (call.state !== "expired") call.state = "denied";
      break;
  }
}

/** A stored thread as messages `{ key, role, parts, runId, agent }`; the steps of one run become one message. */
export function messagesOf(rows) {
  const messages = [];
  for (const row of rows) {
    const parts = rowParts(row);
    const last = messages.at(-1);
    if (row.role === "assistant" && last?.role === "assistant" && last.runId === row.runId && last.agent === row.agentName) last.parts.push(...parts);
    else messages.push({ key: row.id, role: row.role, runId: row.runId, agent: row.agentName, parts });
  }
  return messages;
}

function rowParts(row) {
  const parts = row.content ? [{ type: "text", key: `text-${row.id}`, text: row.content }] : [];
  const results = new Map((row.toolResults ?? []).map((result) => [result.id, result]));
  const approvals = new Map((row.approvals ?? []).map((approval) => [approval.toolCallId, approval]));
  for (const { id, name, input, parentId } of row.toolCalls ?? [])
    parts.push({ type: "call", key: id, id, name, input, parentId, ...outcome(results.get(id), approvals.get(id)) });
  return parts;
}

function outcome(result, approval) {
  if (!result && approval?.status === "pending") return { state: "waiting", card: approval };
  const decision = approval && approval.status !== "pending" ? approval : undefined;
  if (!result) return { state: "running", decision };
  if (!result.error) return { state: "done", output: result.output, decision };
  const state = { rejected: "denied", expired: "expired" }[approval?.status] ?? "failed";
  return { state, error: approval?.reason ?? result.error, decision };
}

/** A card of the inbox as a part. */
export function partOfCard(card) {
  return {
    type: "call",
    key: card.toolCallId,
    id: card.toolCallId,
    name: card.toolName,
    input: card.input,
    state: "waiting",
    card,
    questions: card.request,
  };
}

/**
 * Messages in which a sub-agent's calls stand inside the call that led to it.
 * @param background  parts of runs that go on behind the messages, wherever their call stands
 */
export function nest(messages, background = []) {
  const known = new Set(background.map((part) => part.id));
  return messages.map((message) => {
    const calls = new Map(message.parts.filter((part) => part.type === "call").map((part) => [part.id, part]));
    const isNested = (part) => part.parentId !== undefined && calls.has(part.parentId);
    const all = [...message.parts.filter((part) => !known.has(part.id) || !isNested(part)), ...background];
    const whole = (part) => {
      const nested = part.type === "call" ? all.filter((each) => each.parentId === part.id).map(whole) : [];
      return nested.length > 0 ? { ...part, nested } : part;
    };
    return { ...message, parts: message.parts.filter((part) => !isNested(part)).map(whole) };
  });
}

/** The parts and all that is nested in them. */
export function flat(parts) {
  return parts.flatMap((part) => [part, ...flat(part.nested ?? [])]);
}
