/**
 * Live data: one EventSource per view, opened again with growing pauses when it ends, and the state that the top bar shows.
 * A browser tab that is hidden closes its streams, and opens them when it is shown: a browser has six connections to a host.
 */
import { API, recheckSession } from "./api.js";
import { createStore } from "./store.js";

const PAUSES_MS = [500, 1000, 2000, 4000, 8000];
const HIDDEN_MS = 5_000;

/** @type {Map<object, "live" | "reconnecting" | "paused">} */
const states = new Map();

/** What the top bar shows: the worst state of all sources, or null without any. */
export const connection = createStore(null);

export function report(source, state) {
  if (state === null) states.delete(source);
  else states.set(source, state);
  const all = [...states.values()];
  connection.set(
    all.includes("reconnecting") ? "reconnecting" : all.includes("live") ? "live" : all.includes("paused") ? "paused" : null,
  );
}

/**
 * Watch a stream of the API until the returned function is called.
 * @param {string} path below /api/v1, for example `/live/overview`
 * @param {(data: any, event: string) => void} receive
 * @param {{ events?: string[], query?: URLSearchParams, onEnd?: (data: any) => void, onError?: () => void }} [options]
 */
export function watch(path, receive, { events = ["message"], query, onError } = {}) {
  const source = {};
  let stream = null;
  let timer = 0;
  let failures = 0;
  let isClosed = false;

  function open() {
    clearTimeout(timer);
    const text = query?.toString();
    stream = new EventSource(API + path + (text ? `?${text}` : ""));
    stream.onopen = () => {
      failures = 0;
      report(source, "live");
    };
    stream.onerror = () => {
      report(source, "reconnecting");
      onError?.();
      // The browser itself tries again unless the answer was an error.
      if (stream.readyState === EventSource.CLOSED) {
        recheckSession();
        timer = setTimeout(open, PAUSES_MS[Math.min(failures++, PAUSES_MS.length - 1)]);
      }
    };
    for (const name of events) {
      stream.addEventListener(name, (event) => {
        report(source, "live");
        receive(JSON.parse(event.data), name);
      });
    }
  }

  function shut(state) {
    clearTimeout(timer);
    stream?.close();
    stream = null;
    report(source, state);
  }

  let hiding = 0;
  function visibility() {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => shut("paused"), HIDDEN_MS);
    else if (!stream && !isClosed) open();
  }

  document.addEventListener("visibilitychange", visibility);
  open();
  return () => {
    isClosed = true;
    clearTimeout(hiding);
    document.removeEventListener("visibilitychange", visibility);
    shut(null);
  };
}
