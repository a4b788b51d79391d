// Messages and the thread list as elements.

import { readable } from "./arguments.js";
import { approvalCard, questionForm } from "./cards.js";
import { h, sync } from "./dom.js";

const STATES = {
  preparing: "preparing",
  running: "running",
  done: "done",
  failed: "failed",
  denied: "rejected",
  expired: "expired",
};

/**
 * @param messages  `{ key, role, agent?, parts, ending? }`, the running answer last
 * @param {{ me: { id: string, role: string }, decide: (id: string, verb: string, body: object) => Promise<void> }} actions
 */
export function drawMessages(log, messages, actions) {
  sync(log, introduced(messages), (message, old) => {
    const element = old ?? h("article", { class: message.role, "aria-label": message.role === "user" ? "You" : "Desk" }, h("div", { class: "parts" }));
    const parts = [...message.parts];
    if (message.speaker) parts.unshift({ type: "speaker", key: "speaker", name: message.speaker });
    if (message.ending) parts.push({ type: "ending", key: "ending", ...message.ending });
    element.classList.toggle("streaming", message.streaming === true);
    sync(element.firstElementChild, parts, (part, before) => drawPart(part, before, actions));
    return element;
  });
}

/** The messages, with a `speaker` on those of another agent than the one before. */
function introduced(messages) {
  let before;
  return messages.map((message) => {
    if (!message.agent || message.agent === before) return message;
    const speaker = before && message.agent;
    before = message.agent;
    return { ...message, speaker };
  });
}

function drawPart(part, old, actions) {
  switch (part.type) {
    case "text": {
      const element = old ?? h("p", { class: "text" });
      element.textContent = part.text;
      return element;
    }
    case "call":
      return drawCall(part, old, actions);
    case "speaker":
      return h("p", { class: "meta" }, part.name);
    case "ending":
      return part.kind === "error"
        ? h("p", { class: "ending error", role: "alert" }, part.message)
        : h("p", { class: "ending" }, "Stopped.");
  }
}

/** A call; where it led to a sub-agent, with that one's calls inside. */
function drawCall(call, old, actions) {
  if (!call.nested) return drawOwn(call, actions);
  const agent = call.name.replace(/^(ask|start)_/, "");
  const group = old?.matches(".delegation")
    ? old
    : h("section", { class: "delegation", "aria-label": agent }, h("div", {}), h("p", { class: "meta" }, agent), h("div", { class: "parts" }));
  const [own, , inside] = group.children;
  sync(own, [{ ...call, nested: undefined }], (part) => drawOwn(part, actions));
  sync(inside, call.nested, (part, before) => drawCall(part, before, actions));
  return group;
}

function drawOwn(call, { me, decide }) {
  const send = (verb, body) => decide(call.id, verb, body);
  if (call.state === "waiting") return call.questions ? questionForm(call, send) : approvalCard(call, me, send);
  const open = call.state === "failed" || call.decision !== undefined;
  const edited = call.decision?.editedInput;
  return h(
    "details",
    { class: `call ${call.state}`, tabindex: -1, open },
    h("summary", {}, h("code", {}, call.name), " ", h("span", { class: "state" }, STATES[call.state] ?? call.state), decided(call.decision)),
    call.input !== undefined && h("div", { class: "io" }, h("h4", {}, edited ? "Input, as the model asked" : "Input"), readable(call.input)),
    edited && h("div", { class: "io" }, h("h4", {}, "Input, as it ran"), readable(edited)),
    call.output !== undefined && h("div", { class: "io" }, h("h4", {}, "Output"), readable(call.output)),
    call.error !== undefined && h("div", { class: "io" }, h("h4", {}, call.state === "failed" ? "Error" : "Reason"), readable(call.error)),
  );
}

/** The inbox: cards as parts, each under a line that says who asked. */
export function drawInbox(list, cards, actions) {
  sync(list, cards, (part) => {
    const { agentName, actorRef, requestedAt } = part.card;
    return h("li", {}, h("p", { class: "meta" }, `${actorRef} · ${agentName} · ${new Date(requestedAt).toLocaleString()}`), drawOwn(part, actions));
  });
}

function decided(decision) {
  if (decision?.decidedVia === "remembered") return h("span", { class: "meta" }, " approved as remembered");
  if (!decision?.decidedBy) return undefined;
  const by = decision.status === "approved" ? ` approved by ${decision.decidedBy}` : ` by ${decision.decidedBy}`;
  const resolvedBy = decision.status === "approved" && decision.inDoubt?.resolvedBy;
  return h("span", { class: "meta" }, resolvedBy ? `${by}, resolved by ${resolvedBy}` : by);
}

export function drawThreads(nav, threads, current, open) {
  sync(nav, threads.map((thread) => ({ key: thread.id, title: thread.title || "Untitled", busy: Boolean(thread.activeRunId), current: thread.id === current })), (item) =>
    h(
      "button",
      { type: "button", class: "thread", "aria-current": item.current && "page", onclick: () => open(item.key) },
      h("span", { class: "name" }, item.title),
      item.busy && h("span", { class: "dot", title: "in progress" }, h("span", { class: "hidden" }, " (in progress)")),
    ),
  );
}
