// What waits for a person: the card of an action, and the form of a question set.

import { argumentsEditor, readable, visible } from "./arguments.js";
import { h } from "./dom.js";

/**
 * The card of a call that waits for approval.
 * @param call  the part, see turn.js
 * @param {{ id: string, role: string }} me
 * @param {(verb: string, body: object) => Promise<void>} decide  rejects with the text to show
 */
export function approvalCard(call, me, decide) {
  const { card } = call;
  const mine = card.approver === "requester" ? (card.actorRef ?? me.id) === me.id : card.approver === me.role;
  const note = h("input", { name: "reason", "aria-label": "Reason for rejecting", placeholder: "Reason (optional)", maxlength: 4096 });
  const remember = h("input", { type: "checkbox", name: "remember" });
  const verb = visible(card.confirmation?.verb ?? "Approve");
  // Several people must all see the same, every time; what is in doubt was approved as it stands.
  const editable = mine && !card.inDoubt && !isShared(card);
  const editor = editable && argumentsEditor(call.input, () => (yes.textContent = "Approve as changed"));
  const send = sender(decide);
  const approve = () => {
    const edited = editor ? editor.value() : undefined;
    return { ...(remember.checked && { remember: true }), ...(card.digest && { digest: card.digest }), ...(edited && { arguments: edited }) };
  };
  const reject = () => (note.value.trim() ? { reason: note.value.trim() } : {});
  const yes = h("button", { type: "button", class: "primary", disabled: !mine, onclick: send("approve", approve) }, verb);
  return h(
    "form",
    { class: "card", tabindex: -1, "aria-label": `Approval: ${call.name}`, onsubmit: (event) => event.preventDefault() },
    h("h3", {}, visible(card.confirmation?.title ?? `Run ${call.name}?`)),
    card.confirmation?.detail && h("p", {}, visible(card.confirmation.detail)),
    card.reason && h("p", {}, visible(card.reason)),
    card.inDoubt && doubt(card.inDoubt),
    h("p", { class: "meta" }, h("code", {}, call.name), ` · ${who(card, mine)}`, deadline(card.expiresAt)),
    editor ? editor.element : h("div", { class: "arguments" }, readable(call.input)),
    card.inDoubt
      ? doubtButtons(send, approve, reject, mine)
      : h("div", { class: "buttons" }, yes, h("button", { type: "button", disabled: !mine, onclick: send("reject", reject) }, "Reject"), mine && note),
    editable &&
      h("label", { class: "check" }, remember, h("span", {}, "Don’t ask again for ", h("code", {}, call.name), " in this conversation")),
    h("p", { class: "refusal", role: "alert" }),
  );
}

function who(card, mine) {
  const quorum = isShared(card) ? `, ${card.quorum.have} of ${card.quorum.needed} approvals so far` : "";
  if (card.approver === "requester") return `${mine ? "you decide" : "whoever asked decides"}${quorum}`;
  return `${mine ? "you decide, as" : "needs someone with the role"} ${card.approver}${quorum}`;
}

function isShared(card) {
  return card.quorum?.needed > 1;
}

function deadline(expiresAt) {
  return expiresAt && h("span", {}, " · ", h("time", { "data-deadline": expiresAt, datetime: expiresAt }, remaining(expiresAt, Date.now())));
}

/** How long a card still waits, in words. */
export function remaining(expiresAt, now) {
  const seconds = Math.floor((Date.parse(expiresAt) - now) / 1000);
  if (seconds < 0) return "time is up";
  if (seconds < 60) return `${seconds} s left`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s left`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min left`;
}

function doubt({ startedAt, attempt }) {
  const at = new Date(startedAt).toLocaleTimeString();
  return h("p", { class: "doubt" }, `Attempt ${attempt} was started at ${at} and cut off: it may have happened. Look before you choose.`);
}

function doubtButtons(send, approve, reject, mine) {
  const output = h("input", { "aria-label": "What it returned", placeholder: "What it returned (optional)" });
  const settle = () => ({ output: { result: output.value.trim() || "confirmed by a person" } });
  return h(
    "div",
    { class: "buttons" },
    h("button", { type: "button", disabled: !mine, onclick: send("settle", settle) }, "It happened"),
    output,
    h("button", { type: "button", disabled: !mine, onclick: send("approve", approve) }, "Run it again"),
    h("button", { type: "button", disabled: !mine, onclick: send("reject", reject) }, "Give up"),
  );
}

/** The form of a question set. */
export function questionForm(call, decide) {
  const { preamble, questions } = call.questions;
  const fields = questions.map((question, index) => fieldOf(question, `${call.id}-${index}`));
  const send = sender(decide);
  const answers = () => ({ answers: Object.fromEntries(fields.flatMap((field) => field.answer())) });
  const answer = send("answer", answers);
  return h(
    "form",
    {
      class: "card",
      tabindex: -1,
      "aria-label": "Questions",
      onsubmit: (event) => {
        event.preventDefault();
        answer(event);
      },
    },
    preamble && h("p", {}, preamble),
    ...fields.map((field) => field.element),
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "submit", class: "primary" }, "Answer"),
      h("button", { type: "button", onclick: send("skip", () => ({})) }, "Skip"),
    ),
    h("p", { class: "refusal", role: "alert" }),
  );
}

/** One question: its element, and `answer()` giving `[[id, values]]`, or `[]` where the defaults are to hold. */
function fieldOf(question, group) {
  const { id, prompt, description, options, multiple, defaults = [], allowFreeText } = question;
  if (!options?.length) {
    const control = controlOf(question, defaults[0]);
    const element = h("label", { class: "question" }, h("span", {}, prompt), description && h("span", { class: "hint" }, description), control);
    return { element, answer: () => (control.value === "" ? [] : [[id, [control.value]]]) };
  }
  const picks = options.map(({ value }) =>
    h("input", { type: multiple ? "checkbox" : "radio", name: group, value, checked: defaults.includes(value) }),
  );
  const free = allowFreeText && h("input", { "aria-label": `${prompt}: something else`, placeholder: "Something else", maxlength: 4096 });
  const element = h(
    "fieldset",
    { class: "question" },
    h("legend", {}, prompt),
    description && h("p", { class: "hint" }, description),
    ...options.map((option, index) => h("label", { class: "check" }, picks[index], h("span", {}, option.label))),
    free,
  );
  const answer = () => {
    const picked = picks.filter((pick) => pick.checked).map((pick) => pick.value);
    const typed = free ? free.value.trim() : "";
    if (typed) return [[id, multiple ? [...picked, typed] : [typed]]];
    return [[id, picked]];
  };
  return { element, answer };
}

function controlOf({ input = {} }, value) {
  const { type = "text", placeholder, required, min, max, pattern } = input;
  if (type === "textarea") {
    const area = h("textarea", { rows: 3, placeholder, required, maxlength: 4096 });
    area.value = value ?? "";
    return area;
  }
  if (type === "boolean") {
    const names = { true: "Yes", false: "No" };
    return h("select", {}, ...Object.entries(names).map(([key, name]) => h("option", { value: key, selected: key === value }, name)));
  }
  return h("input", { type: type === "select" ? "text" : type, placeholder, required, min, max, pattern, value, maxlength: 4096, step: type === "number" && "any" });
}

/** Listeners that send one decision: the card takes no second one meanwhile, and says why it was refused. */
function sender(decide) {
  return (verb, body) => async (event) => {
    const form = event.currentTarget.closest("form");
    if (form.ariaBusy === "true") return;
    const refusal = form.querySelector(".refusal");
    refusal.textContent = "";
    form.ariaBusy = "true";
    try {
      await decide(verb, body());
    } catch (error) {
      refusal.textContent = error.message;
      form.ariaBusy = "false";
    }
  };
}
