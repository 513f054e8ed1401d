/** Calls of the HTTP API. A failure is an `ApiError` with a sentence for people. */
import { createStore } from "./store.js";

export const API = "/api/v1";

/** The answer of GET /session, or null before it has come. */
export const session = createStore(null);

export class ApiError extends Error {
  /** @param {number} status 0 when the broker could not be reached */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** `path` with the fields of `query` that have a value. */
export function address(path, query = {}) {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") fields.append(name, String(value));
  }
  const text = fields.toString();
  return API + path + (text ? `?${text}` : "");
}

async function call(method, path, { query, body, signal } = {}) {
  const headers = { accept: "application/json" };
  if (method !== "GET") {
    headers["content-type"] = "application/json";
    const token = session.get()?.csrf;
    if (token) headers["x-csrf-token"] = token;
  }
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers,
      signal,
      credentials: "same-origin",
      body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The broker does not answer. Check that it runs: headrace health");
  }
  if (response.status === 204) return null;
  const answer = await parse(response);
  if (response.ok) return answer;
  if (response.status === 401) loggedOut();
  throw new ApiError(response.status, answer?.error ?? "failed", sentence(answer?.message ?? `The broker answered ${response.status}.`));
}

async function parse(response) {
  try {
    return await response.json();
  } catch {
    return null;
  }
}

function loggedOut() {
  session.set((now) => (now ? { ...now, user: null, needsLogin: true } : now));
}

/** With a capital letter, unless it begins with a name such as retention.ms, and with a full stop. */
const sentence = (text) => (/^[a-z]+[ ,:]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text) + (/[.!?]$/.test(text) ? "" : ".");

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body) => call("POST", path, { body });
export const put = (path, body) => call("PUT", path, { body });
export const patch = (path, body) => call("PATCH", path, { body });
export const del = (path, body) => call("DELETE", path, { body });

/** Ask whether the login still holds: a stream that is refused does not say why. */
export async function recheckSession() {
  try {
    const now = await get("/session");
    session.set((before) => (before?.user === now.user && before?.csrf === now.csrf ? before : now));
  } catch {
    // The broker is away: the streams are tried again anyway.
  }
}

/** Part of a path of the API. */
export const part = encodeURIComponent;
