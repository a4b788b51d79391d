// Messages and the thread list as elements.

import { approvalCard, questionForm, readable } from "./cards.js";
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
 * @param messages  `{ key, role, parts, ending? }`, the running answer last
 * @param {{ me: { id: string, role: string }, decide: (id: string, verb: string, body: object) => Promise<void> }} actions
 */
export function drawMessages(log, messages, actions) {
  sync(log, messages, (message, old) => {
    const element = old ?? h("article", { class: message.role, "aria-label": message.role === "user" ? "You" : "Desk" }, h("div", { class: "parts" }));
    const parts = message.ending ? [...message.parts, { type: "ending", key: "ending", ...message.ending }] : message.parts;
    element.classList.toggle("streaming", message.streaming === true);
    sync(element.firstElementChild, parts, (part, before) => drawPart(part, before, actions));
    return element;
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
      return drawCall(part, actions);
    case "ending":
      return part.kind === "error"
        ? h("p", { class: "ending error", role: "alert" }, part.message)
        : h("p", { class: "ending" }, "Stopped.");
  }
}

function drawCall(call, { me, decide }) {
  const send = (verb, body) => decide(call.id, verb, body);
  const nested = call.parentId ? " nested" : "";
  if (call.state === "waiting" && call.questions) return h("div", { class: `wait${nested}` }, questionForm(call, send));
  if (call.state === "waiting") return h("div", { class: `wait${nested}` }, approvalCard(call, me, send));
  const open = call.state === "failed" || call.decision !== undefined;
  return h(
    "details",
    { class: `call ${call.state}${nested}`, tabindex: -1, open },
    h("summary", {}, h("code", {}, call.name), " ", h("span", { class: "state" }, STATES[call.state] ?? call.state), decided(call.decision)),
    call.input !== undefined && h("div", { class: "io" }, h("h4", {}, "Input"), readable(call.input)),
    call.output !== undefined && h("div", { class: "io" }, h("h4", {}, "Output"), readable(call.output)),
    call.error !== undefined && h("div", { class: "io" }, h("h4", {}, call.state === "failed" ? "Error" : "Reason"), readable(call.error)),
  );
}

function decided(decision) {
  if (decision?.decidedVia === "remembered") return h("span", { class: "meta" }, " approved as remembered");
  if (!decision?.decidedBy) return undefined;
  return h("span", { class: "meta" }, decision.status === "approved" ? ` approved by ${decision.decidedBy}` : ` by ${decision.decidedBy}`);
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
