// Requests and event streams of the agent's API. Nothing here knows what a frame means.

/** The server said no. `message` is meant for people, `code` for programs. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** A gateway or a starting server, not an answer: worth another try. */
  get isPassing() {
    return this.status >= 500;
  }
}

export class Wire {
  /**
   * @param {string} base  where the agent's routes are mounted, e.g. "/agent"
   * @param {() => Record<string, string>} identity  headers that say who acts
   */
  constructor(base, identity) {
    this.base = base;
    this.identity = identity;
  }

  /** The response of an accepted request; throws `Refused`, or what `fetch` throws when nobody answers. */
  async request(method, path, { body, headers, signal } = {}) {
    const response = await fetch(this.base + path, {
      method,
      signal,
      headers: {
        ...this.identity(),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    throw new Refused(response.status, problem.code, problem.message ?? `The server answered ${response.status}.`);
  }

  async json(method, path, body, options) {
    const response = await this.request(method, path, { body, ...options });
    return response.status === 204 ? undefined : response.json();
  }
}

/**
 * The blocks of an event stream: `{ event, seq, data }`, `data` parsed. Ends when the connection closes cleanly.
 * Blocks without data (keep-alives) are left out.
 */
export async function* blocks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const block = parse(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (block) yield block;
    }
  }
}

function parse(text) {
  let event = "message";
  let seq;
  const data = [];
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "event") event = value;
    else if (field === "id") seq = Number(value);
    else if (field === "data") data.push(value);
  }
  return data.length > 0 ? { event, seq, data: JSON.parse(data.join("\n")) } : undefined;
}
