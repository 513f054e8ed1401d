/** Data of the API for a component: fetched once, then live by a stream or asked for again, never with the page emptied. */
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { get } from "./api.js";
import { report, watch } from "./live.js";

const POLL_MS = 4000;
const HISTORY_POINTS = 360;
const LIVE_EVENTS = ["message", "update"];

/**
 * @param {string | null} path below /api/v1; null to wait
 * @param {{ query?: object, live?: string, pollMs?: number | false, version?: number }} [options] `live` is a view of /live; without it the data
 *   is asked for every few seconds, each time after the last answer; another `version` asks at once
 * @returns {{ data: any, error: Error | null, isLoading: boolean, reload: () => void }}
 */
export function useResource(path, { query, live, pollMs = POLL_MS, version = 0 } = {}) {
  const key = path === null ? null : `${path}?${JSON.stringify(query ?? {})}`;
  const [state, setState] = useState({ key: null, path: null, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const current = useRef(null);
  current.current = key;

  useEffect(() => {
    if (path === null) return undefined;
    const source = {};
    const abort = new AbortController();
    let timer = 0;
    let stop = null;
    let isLive = false;

    async function load() {
      try {
        const data = await get(path, query, abort.signal);
        if (current.current !== key) return;
        setState({ key, path, data, error: null });
        if (live && !stop) stop = watch(`/live/${live}`, received, { events: LIVE_EVENTS });
        else if (!live && pollMs) report(source, "live");
      } catch (error) {
        if (error.name === "AbortError") return;
        // What was shown stays, with the state in the top bar, when the broker is away for a moment.
        setState((now) => ({ key, path, data: now.path === path ? now.data : null, error }));
        if (error.status === 0 || error.status >= 500) report(source, "reconnecting");
      }
      if (!abort.signal.aborted && !isLive && pollMs) timer = setTimeout(visible, pollMs);
    }

    /** With the first event of the stream there is no more asking. */
    function received(fresh) {
      isLive = true;
      clearTimeout(timer);
      setState((now) => {
        // After a pause the points in between are missing: ask for all of them.
        if (hasGap(now.data?.history, fresh.history)) queueMicrotask(load);
        return { key, path, data: merge(now.data, fresh), error: null };
      });
    }

    function visible() {
      if (document.hidden) timer = setTimeout(visible, pollMs);
      else load();
    }

    load();
    return () => {
      abort.abort();
      clearTimeout(timer);
      stop?.();
      report(source, null);
    };
  }, [key, live, turn, version]);

  const reload = useCallback(() => setTurn((now) => now + 1), []);
  // Another page of the same list: the rows that are there stay until the new ones come.
  const isSame = state.path === path;
  return {
    data: isSame ? state.data : null,
    error: state.key === key ? state.error : null,
    isLoading: state.key !== key,
    reload,
  };
}

/** A live event has the newest point of each history: it is added to those that are there. */
export function merge(before, fresh) {
  if (!before || !fresh || typeof fresh !== "object") return fresh;
  const merged = { ...before, ...fresh };
  if (before.history && fresh.history) merged.history = extend(before.history, fresh.history);
  return merged;
}

const hasGap = (before, fresh) => Boolean(before && fresh) && fresh.end_ms - before.end_ms > 2 * fresh.step_s * 1000;

function extend(before, fresh) {
  const stepMs = (before.step_s ?? fresh.step_s) * 1000;
  const steps = Math.round((fresh.end_ms - before.end_ms) / stepMs);
  const most = Math.max(HISTORY_POINTS, ...Object.values(fresh.series).map((each) => each.length));
  const series = {};
  for (const name of new Set([...Object.keys(before.series), ...Object.keys(fresh.series)])) {
    const old = before.series[name] ?? [];
    const points = fresh.series[name] ?? [null];
    const added = points.length > 1 ? points : points.slice(-1);
    if (points.length > 1) series[name] = points;
    else if (steps <= 0) series[name] = old.length ? [...old.slice(0, -1), added[0]] : added;
    else series[name] = [...old, ...Array(Math.min(steps - 1, most)).fill(null), ...added].slice(-most);
  }
  return { ...before, ...fresh, series };
}
