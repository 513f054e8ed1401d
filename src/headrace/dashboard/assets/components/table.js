/**
 * Tables. `DataTable` shows rows; `ListTable` is a list of the API that the server searches, sorts and cuts into pages, with all
 * of that in the query string. On a phone each row becomes a card of labelled values.
 */
import { html, useEffect, useRef, useState } from "../core/html.js";
import { setQuery, usePlace } from "../core/router.js";
import { count } from "../core/format.js";
import { Icon } from "./icons.js";
import { Failed, SkeletonRows } from "./states.js";
import { useResource } from "../core/resource.js";
import { useTrail } from "../core/trail.js";
import { Sparkline } from "./sparkline.js";

const PER_PAGE = 50;
const TYPING_MS = 250;

/**
 * @typedef {{ key: string, label: string, cell: (row: any) => any, end?: boolean, name?: boolean, sort?: string, wide?: boolean, fill?: boolean, phone?: boolean }} Column
 * `fill` takes the room that is left, and cuts its text;
 * `sort` is the field that the server sorts by; `phone: false` hides the column on a phone
 */

function cellClass(column) {
  return [column.name && "name", column.end && "end", column.wide && "wide", column.fill && "fill", column.phone === false && "hide-phone"].filter(Boolean).join(" ");
}

/** @param {{ caption: string, columns: Column[], rows: any[], rowKey: (row: any) => any, sort?: string, order?: string, onSort?: (field: string) => void, isLoading?: boolean }} props */
export function DataTable({ caption, columns, rows, rowKey, sort, order, onSort, isLoading, empty, rowClass }) {
  if (!isLoading && rows.length === 0 && empty) return empty;
  return html`<div class="table-scroll" role="region" aria-label=${caption} tabindex="0">
    <table class="cards" role="table" aria-busy=${isLoading ? "true" : undefined}>
      <caption class="visually-hidden">${caption}</caption>
      <thead role="rowgroup">
        <tr role="row">${columns.map((each) => html`<${Head} key=${each.key} column=${each} sort=${sort} order=${order} onSort=${onSort} />`)}</tr>
      </thead>
      <tbody role="rowgroup">
        ${isLoading && rows.length === 0
          ? html`<${SkeletonRows} columns=${columns.length} />`
          : rows.map(
              (row) => html`<tr key=${rowKey(row)} role="row" class=${rowClass?.(row)}>
                ${columns.map((each) => html`<td key=${each.key} role="cell" class=${cellClass(each)} data-label=${each.label}>${each.cell(row)}</td>`)}
              </tr>`,
            )}
      </tbody>
    </table>
  </div>`;
}

function Head({ column, sort, order, onSort }) {
  const isSorted = column.sort && column.sort === sort;
  const direction = isSorted ? (order === "desc" ? "descending" : "ascending") : undefined;
  const label = column.hidden ? html`<span class="visually-hidden">${column.label}</span>` : column.label;
  return html`<th scope="col" role="columnheader" class=${column.end ? "end" : ""} aria-sort=${direction}>
    ${column.sort && onSort
      ? html`<button type="button" class="sort" onClick=${() => onSort(column.sort)}>${label}<${Icon} name=${order === "desc" && isSorted ? "down" : "up"} /></button>`
      : label}
  </th>`;
}

/**
 * @param {{ path: string, caption: string, columns: Column[], rowKey: (row: any) => any, sort: string, order?: string, search?: string, filters?: any, query?: object, empty: any, pollMs?: number, version?: number, tools?: any, trail?: { after: string, label: string, value: (row: any) => number } }} props
 *   `search` is the placeholder of the search field; `sort` and `order` hold until others are chosen
 */
export function ListTable({ path, caption, columns, rowKey, sort, order = "asc", search, filters, query = {}, empty, pollMs, version = 0, tools, trail }) {
  const { query: asked } = usePlace();
  const now = {
    search: asked.get("search") ?? "",
    sort: asked.get("sort") ?? sort,
    order: asked.get("order") ?? (asked.get("sort") ? "asc" : order),
    page: Number(asked.get("page") ?? 1),
  };
  const resource = useResource(path, { query: { ...query, ...now, per_page: PER_PAGE }, pollMs, version });
  const rows = resource.data?.items ?? [];
  const points = useTrail(resource.data?.items, rowKey, trail?.value ?? (() => null));
  const isFiltered = now.search !== "" || Object.values(query).some((each) => each !== undefined && each !== "");
  function onSort(field) {
    const first = columns.find((each) => each.sort === field)?.end ? "desc" : "asc";
    const other = now.order === "asc" ? "desc" : "asc";
    setQuery({ sort: field, order: field === now.sort ? other : first, page: null });
  }
  return html`<section class="card" aria-label=${caption}>
    <div class="table-tools">
      ${search && html`<${SearchField} label=${search} value=${now.search} />`}
      ${filters}
      ${tools && html`<div class="topbar-end">${tools}</div>`}
    </div>
    ${resource.error && !resource.data
      ? html`<${Failed} error=${resource.error} retry=${resource.reload} />`
      : html`<${DataTable} caption=${caption} columns=${trail ? withTrail(columns, trail, points) : columns} rows=${rows} rowKey=${rowKey} sort=${now.sort} order=${now.order} onSort=${onSort}
          isLoading=${resource.isLoading && !resource.data}
          empty=${isFiltered ? html`<div class="empty"><${Icon} name="search" /><h2>Nothing matches</h2><button type="button" class="button" onClick=${() => clear(query)}>Clear the filter</button></div>` : empty} />`}
    ${resource.data && resource.data.total > 0 && html`<${Pager} data=${resource.data} />`}
  </section>`;
}

/** A column with a line of the newest points, behind the column that `after` names. */
function withTrail(columns, trail, points) {
  const at = columns.findIndex((each) => each.key === trail.after) + 1;
  const cell = (row) => html`<${Sparkline} points=${points(row)} label=${`${trail.label} while this page was open`} />`;
  return [...columns.slice(0, at), { key: "trail", label: trail.label, end: true, phone: false, cell }, ...columns.slice(at)];
}

const clear = (query) => setQuery({ search: null, page: null, ...Object.fromEntries(Object.keys(query).map((each) => [each, null])) });

/** A search that goes into the query string a moment after the last letter. */
export function SearchField({ label, value, field = "search" }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  function typed(event) {
    setText(event.target.value);
    clearTimeout(timer.current);
    const next = event.target.value;
    timer.current = setTimeout(() => setQuery({ [field]: next, page: null }), TYPING_MS);
  }
  return html`<div class="search">
    <${Icon} name="search" />
    <input class="input" type="search" data-search aria-label=${label} placeholder=${label} spellcheck=${false} autocomplete="off" value=${text} onInput=${typed} />
    <kbd aria-hidden="true">/</kbd>
  </div>`;
}

function Pager({ data }) {
  const first = (data.page - 1) * data.per_page + 1;
  const last = Math.min(data.total, data.page * data.per_page);
  const go = (page) => setQuery({ page: page === 1 ? null : page }, { replace: false });
  return html`<nav class="pager" aria-label="Pages">
    <span>${count(first)}–${count(last)} of ${count(data.total)}</span>
    ${data.total > data.per_page &&
    html`<span class="row">
      <button type="button" class="button small" disabled=${data.page <= 1} onClick=${() => go(data.page - 1)}><${Icon} name="left" />Previous</button>
      <button type="button" class="button small" disabled=${last >= data.total} onClick=${() => go(data.page + 1)}>Next<${Icon} name="right" /></button>
    </span>`}
  </nav>`;
}
