/** Messages of a topic: browsed from an offset or a time, or live as they come; filters are fields, never code. */
import { html, useEffect, useRef, useState } from "../core/html.js";
import { address, get, part } from "../core/api.js";
import { bytes, count, plural, time } from "../core/format.js";
import { watch } from "../core/live.js";
import { setQuery, usePlace } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Choice, Field } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Empty, Failed } from "../components/states.js";
import { MessageDetail, preview } from "./message.js";
import { DataTable } from "../components/table.js";

const MOST_SHOWN = 500;
const FILTERS = ["key_contains", "value_contains", "header", "json_path", "json_equals"];
const STARTS = [
  ["latest", "Newest first"],
  ["earliest", "From the beginning"],
  ["offset", "From an offset"],
  ["time", "From a time"],
  ["tail", "Live tail"],
];

/** The query of the API for what the address says. */
function asked(query) {
  const mode = query.get("from") ?? "latest";
  const at = query.get("at") ?? "";
  const wanted = Object.fromEntries(FILTERS.map((each) => [each, query.get(each) ?? undefined]));
  const from = mode === "offset" ? `offset:${at || 0}` : mode === "time" ? `time:${iso(at)}` : mode === "tail" ? undefined : mode;
  return { mode, query: { from, partition: query.get("partition") ?? undefined, ...wanted } };
}

/** What a field for date and time has is in the time zone of the browser. */
const iso = (text) => {
  const at = new Date(text || Date.now() - 3_600_000);
  return Number.isNaN(at.getTime()) ? new Date().toISOString() : at.toISOString();
};

export function Messages({ topic, partitions }) {
  const place = usePlace();
  const wanted = asked(place.query);
  const key = JSON.stringify(wanted);
  return html`<section class="card" aria-label="Messages">
    <${Tools} topic=${topic} partitions=${partitions} query=${place.query} wanted=${wanted} />
    ${wanted.mode === "tail"
      ? html`<${Tail} key=${key} topic=${topic} query=${wanted.query} />`
      : html`<${Browse} key=${key} topic=${topic} query=${wanted.query} />`}
  </section>`;
}

function Tools({ topic, partitions, query, wanted }) {
  const mode = wanted.mode;
  const [isOpen, setOpen] = useState(FILTERS.some((each) => query.get(each)));
  const used = FILTERS.filter((each) => query.get(each)).length;
  const choices = [["", "All partitions"], ...Array.from({ length: Math.min(partitions, 1000) }, (_, i) => [String(i), `Partition ${i}`])];
  const download = address(`/topics/${part(topic)}/download`, { ...wanted.query, from: wanted.query.from === "latest" ? "earliest" : wanted.query.from });
  return html`<div class="table-tools">
      <${Choice} label="Start" value=${mode} options=${STARTS} onValue=${(from) => setQuery({ from: from === "latest" ? null : from, at: null }, { replace: false })} />
      ${mode === "offset" && html`<${At} label="Offset" type="number" query=${query} />`}
      ${mode === "time" && html`<${At} label="Time" type="datetime-local" query=${query} />`}
      <${Choice} label="Partition" value=${query.get("partition") ?? ""} options=${choices} onValue=${(partition) => setQuery({ partition })} />
      <button type="button" class="button" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => setOpen(!isOpen)}><${Icon} name="filter" />Filter${used > 0 && html` <${Badge} tone="info">${used}<//>`}</button>
      <a class="button" href=${download} download=${`${topic}.ndjson`}><${Icon} name="download" />Download</a>
    </div>
    ${isOpen && html`<${Filters} query=${query} />`}`;
}

function At({ label, type, query }) {
  return html`<input class="input at" aria-label=${label} type=${type} min="0" step=${type === "number" ? "1" : "1"} value=${query.get("at") ?? ""} placeholder=${label} onChange=${(event) => setQuery({ at: event.target.value })} />`;
}

const LABELS = {
  key_contains: ["Key contains", "customer-17"],
  value_contains: ["Value contains", "paid"],
  header: ["Header", "content-type:application/json"],
  json_path: ["JSON path", "$.order.status"],
  json_equals: ["equals", "paid"],
};

function Filters({ query }) {
  function submit(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    setQuery(Object.fromEntries(FILTERS.map((each) => [each, form.get(each)])), { replace: false });
  }
  return html`<form class="filters" onSubmit=${submit}>
    ${FILTERS.map(
      (name) => html`<${Field} key=${name} label=${LABELS[name][0]}>
        ${(props) => html`<input ...${props} class="input mono" name=${name} placeholder=${LABELS[name][1]} spellcheck=${false} value=${query.get(name) ?? ""} />`}
      <//>`,
    )}
    <div class="row filter-actions"><button class="button primary">Apply</button>
      <button type="button" class="button quiet" onClick=${() => setQuery(Object.fromEntries(FILTERS.map((each) => [each, null])))}>Clear</button></div>
  </form>`;
}

function Browse({ topic, query }) {
  const [state, setState] = useState({ items: [], next: null, scanned: 0, isBusy: true, error: null });
  const abort = useRef(null);
  async function load(cursor) {
    abort.current?.abort();
    abort.current = new AbortController();
    setState((now) => ({ ...now, isBusy: true, error: null }));
    try {
      const page = await get(`/topics/${part(topic)}/messages`, { ...query, limit: 50, cursor }, abort.current.signal);
      setState((now) => ({
        items: cursor ? [...now.items, ...page.items].slice(-MOST_SHOWN) : page.items,
        next: page.next,
        scanned: (cursor ? now.scanned : 0) + page.scanned,
        isComplete: page.is_complete,
        lastCount: page.items.length,
        isBusy: false,
        error: null,
      }));
    } catch (error) {
      if (error.name !== "AbortError") setState((now) => ({ ...now, isBusy: false, error }));
    }
  }
  useEffect(() => {
    load();
    return () => abort.current?.abort();
  }, []);
  if (state.error && state.items.length === 0) return html`<${Failed} error=${state.error} retry=${() => load()} />`;
  const isFiltered = FILTERS.some((each) => query[each]);
  const more = state.next && !(state.isComplete && state.lastCount === 0);
  return html`<${MessageTable} items=${state.items} isLoading=${state.isBusy && state.items.length === 0}
      empty=${isFiltered || query.from !== "latest"
        ? html`<${Empty} icon="search" title="No message matches">${plural(state.scanned, "message")} ${state.scanned === 1 ? "was" : "were"} looked at.<//>`
        : html`<${Empty} icon="topics" title="No messages yet" command=${`echo hello | headrace produce ${topic}`}>Produce one with the button above, or from the terminal.<//>`} />
    <div class="pager"><span>${plural(state.items.length, "message")} shown, ${count(state.scanned)} looked at</span>
      ${more && html`<button type="button" class="button small" disabled=${state.isBusy} onClick=${() => load(state.next)}>${state.isBusy ? "Reading…" : query.from === "latest" ? "Older messages" : "Continue"}</button>`}</div>`;
}

function Tail({ topic, query }) {
  const [items, setItems] = useState([]);
  const [isPaused, setPaused] = useState(false);
  const paused = useRef(false);
  const held = useRef([]);
  paused.current = isPaused;
  useEffect(() => {
    const fields = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined));
    return watch(
      `/topics/${part(topic)}/tail`,
      (data) => {
        const fresh = (Array.isArray(data) ? data : (data.items ?? [data])).filter((each) => each.offset !== undefined);
        if (paused.current) held.current = [...fresh.reverse(), ...held.current].slice(0, MOST_SHOWN);
        else setItems((now) => [...fresh.reverse(), ...now].slice(0, MOST_SHOWN));
      },
      { query: fields, events: ["message", "messages"] },
    );
  }, []);
  function toggle() {
    if (isPaused) {
      setItems((now) => [...held.current, ...now].slice(0, MOST_SHOWN));
      held.current = [];
    }
    setPaused(!isPaused);
  }
  return html`<div class="tail-bar">
      <span class="small second" role="status">${isPaused ? "Paused: new messages wait" : "Messages appear as they are produced, newest first"}</span>
      <button type="button" class="button small" onClick=${toggle}><${Icon} name=${isPaused ? "play" : "pause"} />${isPaused ? "Resume" : "Pause"}</button>
    </div>
    <${MessageTable} items=${items} isLoading=${false} empty=${html`<${Empty} icon="clock" title="Waiting for messages" command=${`echo hello | headrace produce ${topic}`}>They appear here as they are produced.<//>`} />`;
}

const keyOf = (row) => `${row.partition}:${row.offset}`;

function MessageTable({ items, isLoading, empty }) {
  const { query } = usePlace();
  const open = query.get("open");
  const shown = items.find((each) => keyOf(each) === open);
  return html`<${DataTable} caption="Messages" rows=${items} rowKey=${keyOf} isLoading=${isLoading} empty=${empty} rowClass=${(row) => (keyOf(row) === open ? "selected" : "")}
      columns=${[
        { key: "time", label: "Time", cell: (row) => html`<time class="nowrap">${time(row.timestamp_ms, { withMs: true })}</time>` },
        { key: "partition", label: "Partition", end: true, cell: (row) => row.partition },
        { key: "offset", label: "Offset", end: true, cell: (row) => html`<button type="button" class="linklike num" aria-label=${`Open partition ${row.partition}, offset ${row.offset}`} onClick=${() => setQuery({ open: keyOf(row) })}>${row.offset}</button>` },
        { key: "key", label: "Key", wide: true, cell: (row) => html`<code class="cut key">${row.key ?? html`<span class="muted">none</span>`}</code>` },
        { key: "value", label: "Value", wide: true, fill: true, cell: (row) => html`<button type="button" class="cut value mono" aria-label=${`Open the message at offset ${row.offset}`} onClick=${() => setQuery({ open: keyOf(row) })}>${preview(row)}</button>` },
        { key: "size", label: "Size", end: true, phone: false, cell: (row) => bytes(row.size_bytes) },
      ]} />
    ${shown && html`<${MessageDetail} message=${shown} onClose=${() => setQuery({ open: null })} />`}`;
}
