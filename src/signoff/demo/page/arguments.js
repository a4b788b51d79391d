// What a call is to run with: as a person reads it, and as a form to change it.

import { h } from "./dom.js";

/** Arguments and outputs as a person reads them. */
export function readable(value) {
  if (value === null || typeof value !== "object") return h("p", { class: "value" }, plain(value));
  if (Array.isArray(value) || Object.keys(value).length === 0) return h("pre", {}, visible(JSON.stringify(value, null, 2)));
  return h(
    "dl",
    {},
    ...Object.entries(value).flatMap(([name, item]) => [
      h("dt", {}, visible(name)),
      h("dd", {}, item !== null && typeof item === "object" ? h("pre", {}, visible(JSON.stringify(item, null, 2))) : plain(item)),
    ]),
  );
}

function plain(value) {
  return typeof value === "string" ? visible(value) : JSON.stringify(value) ?? "";
}

// Direction marks, joiners, fillers: what a person cannot see, or what makes text read otherwise than it runs.
const UNSEEN = /(?![\n\t])[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;

/** Text with every character that cannot be seen written as its code. */
export function visible(text) {
  return text.replace(UNSEEN, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

/**
 * Arguments, readable until a person chooses to change them; then one field each.
 * @param input  the arguments, an object
 * @param {() => void} begun  called when a person begins to change them
 * @returns {{ element: Element, value: () => object | undefined }}  `value` is undefined while nothing is changed,
 *   and throws, with the text to show, where a field cannot be read
 */
export function argumentsEditor(input, begun) {
  const element = h("div", { class: "arguments" });
  let fields;
  const edit = () => {
    fields = Object.entries(input).map(([name, value]) => fieldOf(name, value));
    element.replaceChildren(...fields.map((field) => field.element));
    fields[0].element.querySelector("input, textarea").focus();
    begun();
  };
  const change = Object.keys(input).length > 0 && h("button", { type: "button", class: "link", onclick: edit }, "Change the arguments");
  element.append(readable(input), change || "");
  return {
    element,
    value() {
      if (!fields) return undefined;
      const edited = Object.fromEntries(fields.map((field) => [field.name, field.value()]));
      return JSON.stringify(edited) === JSON.stringify(input) ? undefined : edited;
    },
  };
}

function fieldOf(name, value) {
  const { control, read } = controlOf(name, value);
  return { name, value: read, element: h("label", { class: typeof value === "boolean" ? "check" : "field" }, h("span", {}, visible(name)), control) };
}

function controlOf(name, value) {
  if (typeof value === "boolean") {
    const control = h("input", { type: "checkbox", checked: value });
    return { control, read: () => control.checked };
  }
  if (typeof value === "number") {
    const control = h("input", { type: "number", step: "any", value });
    return { control, read: () => (Number.isNaN(control.valueAsNumber) ? refuse(`“${name}” must be a number.`) : control.valueAsNumber) };
  }
  const control = h("textarea", { rows: 1, spellcheck: "false" });
  if (typeof value === "string") {
    // Line breaks are the only thing a text box would change by itself; an untouched text stays what it was.
    control.value = value;
    const shown = control.value;
    return { control, read: () => (control.value === shown ? value : control.value) };
  }
  control.value = JSON.stringify(value, null, 2);
  control.rows = Math.min(8, control.value.split("\n").length);
  return { control, read: () => jsonOf(name, control.value) };
}

function jsonOf(name, text) {
  try {
    return JSON.parse(text);
  } catch {
    return refuse(`“${name}” is not JSON.`);
  }
}

function refuse(text) {
  throw new Error(text);
}
