/**
 * Addresses: each view is a path under /ui, and what one has filtered, sorted or opened in it is the query string. So a copied
 * address shows the same view, and Back goes back.
 */
import { createStore, useStore } from "./store.js";

export const BASE = "/ui";

const read = () => ({ path: location.pathname, query: new URLSearchParams(location.search) });
const place = createStore(read());

addEventListener("popstate", () => place.set(read()));

/** Go to an address of the dashboard. `replace` for changes that Back should not stop at, such as each letter of a search. */
export function navigate(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  const before = place.get().path;
  place.set(read());
  if (!replace && before !== location.pathname) scrollTo(0, 0);
}

/** Change fields of the query string; an empty value removes the field. */
export function setQuery(changes, options = { replace: true }) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), options);
}

export const usePlace = () => useStore(place);

/** The address of a view: `to("topics", name, "messages")`. Names are escaped. */
export function to(...parts) {
  return [BASE, ...parts.filter((part) => part !== "" && part !== undefined).map((part) => encodeURIComponent(part))].join("/");
}

/**
 * The first route that fits the path, with its named parts: `["topics/:name/:tab?", page]`.
 * @returns {{ page: any, params: Record<string, string> } | null}
 */
export function match(path, routes) {
  const parts = path.slice(BASE.length).split("/").filter(Boolean);
  for (const [pattern, page] of routes) {
    const wanted = pattern.split("/").filter(Boolean);
    const least = wanted.filter((each) => !each.endsWith("?")).length;
    if (parts.length < least || parts.length > wanted.length) continue;
    const params = {};
    const fits = wanted.every((each, i) => {
      if (!each.startsWith(":")) return each === parts[i];
      if (parts[i] !== undefined) params[each.slice(1).replace("?", "")] = decode(parts[i]);
      return true;
    });
    if (fits) return { page, params };
  }
  return null;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Links to the dashboard change the view instead of loading a page; with a modifier key they are the browser's. */
export function followLinks(root) {
  root.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest?.("a[href]");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}
