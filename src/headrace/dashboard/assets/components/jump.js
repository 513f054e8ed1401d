/** The jump box: type a part of a name, and go to that topic, group, queue, pipeline or page. */
import { html, useEffect, useRef, useState } from "../core/html.js";
import { get } from "../core/api.js";
import { PLACES } from "../core/keys.js";
import { navigate, to } from "../core/router.js";
import { Icon } from "./icons.js";

const TYPING_MS = 150;
const PER_KIND = 5;
const KINDS = [
  ["topics", "name", "topic"],
  ["groups", "group", "group"],
  ["queues", "queue", "queue"],
  ["subjects", "subject", "schema", "schemas"],
  ["link-figures", "name", "link", "links"],
];

const pages = (text) =>
  PLACES.filter(([, , label]) => label.toLowerCase().includes(text.toLowerCase())).map(([, path, label]) => ({
    icon: path || "overview",
    label,
    kind: "page",
    href: to(path),
  }));

async function find(text, signal) {
  const lists = await Promise.all(
    KINDS.map(([path, field, kind, place = path]) =>
      get(`/${path}`, { search: text, per_page: PER_KIND }, signal)
        .then((answer) => answer.items.map((each) => ({ icon: place, label: each[field] ?? each.name, kind, href: to(place, each[field] ?? each.name) })))
        .catch(() => []),
    ),
  );
  return lists.flat();
}

export function JumpBox({ onClose }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState(pages(""));
  const [at, setAt] = useState(0);
  const node = useRef(null);

  useEffect(() => {
    const before = document.activeElement;
    node.current.showModal();
    return () => before?.focus?.();
  }, []);

  useEffect(() => {
    setFound(pages(text));
    setAt(0);
    if (!text) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      const names = await find(text, abort.signal);
      if (!abort.signal.aborted) setFound([...names, ...pages(text)]);
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);

  function go(each) {
    if (!each) return;
    onClose();
    navigate(each.href);
  }

  function pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((now) => (now + step + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      go(found[at]);
    }
  }

  return html`<dialog
    ref=${node}
    class="jump"
    aria-label="Jump to"
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
    onMouseDown=${(event) => event.target === node.current && onClose()}
  >
    <input class="input" role="combobox" aria-label="Jump to a topic, group, queue or page" aria-expanded="true" aria-controls="jump-list"
      aria-activedescendant=${found.length ? `jump-${at}` : undefined} placeholder="Jump to a topic, group, queue or page" autofocus
      spellcheck=${false} autocomplete="off" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${pressed} />
    <ul id="jump-list" role="listbox" aria-label="Found">
      ${found.map(
        (each, i) => html`<li key=${each.href} id=${`jump-${i}`} role="option" aria-selected=${i === at ? "true" : "false"} onClick=${() => go(each)} onMouseMove=${() => setAt(i)}>
          <${Icon} name=${each.icon} /><span class="truncate">${each.label}</span><span class="kind">${each.kind}</span>
        </li>`,
      )}
      ${found.length === 0 && html`<li class="empty small" role="option" aria-selected="false">Nothing has “${text}” in its name.</li>`}
    </ul>
  </dialog>`;
}
