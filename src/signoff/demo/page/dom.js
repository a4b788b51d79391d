// The little that the page needs to keep a tree of elements in step with values.

/** An element. Properties are set as attributes, `on…` as listeners; undefined and false are left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== false));
  return element;
}

const shown = new WeakMap();

/**
 * Make `parent`'s children be one per item, in order. An element is kept as long as its item's key and value stay
 * the same, so that what a person is typing into it stays too; `draw(item, old)` makes a new one, or changes and
 * returns the old one.
 */
export function sync(parent, items, draw) {
  const old = new Map([...parent.children].map((element) => [shown.get(element)?.key, element]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const before = old.get(item.key);
    const value = JSON.stringify(item);
    let element = before;
    if (!before || shown.get(before).value !== value) {
      const focused = before?.contains(document.activeElement);
      element = draw(item, before);
      shown.set(element, { key: item.key, value });
      if (before && before !== element) {
        if (place === before) place = element;
        before.replaceWith(element);
        if (focused) element.focus({ preventScroll: true });
      }
    }
    old.delete(item.key);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const element of old.values()) element.remove();
}
