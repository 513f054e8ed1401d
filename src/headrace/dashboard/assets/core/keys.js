/** Keyboard: single keys and the sequences that begin with g. Keys that are typed into a field are the field's. */
import { navigate, to } from "./router.js";

const SEQUENCE_MS = 1200;

/** Second key after g, what it opens, and its name. */
export const PLACES = [
  ["o", "", "Overview"],
  ["t", "topics", "Topics"],
  ["g", "groups", "Groups"],
  ["q", "queues", "Queues"],
  ["x", "transactions", "Transactions"],
  ["m", "schemas", "Schemas"],
  ["p", "pipelines", "Pipelines"],
  ["c", "cluster", "Cluster"],
  ["k", "links", "Links"],
  ["l", "clients", "Clients"],
  ["s", "security", "Security"],
];

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]");

/** @param {{ help: () => void, jump: () => void, theme: () => void }} commands */
export function listenToKeys(commands) {
  let waitsUntil = 0;
  function pressed(event) {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      commands.jump();
      return;
    }
    if (event.key === "Escape" && isTyping(event.target) && !event.target.closest("dialog")) {
      event.target.blur();
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (performance.now() < waitsUntil) {
      waitsUntil = 0;
      const place = PLACES.find(([key]) => key === event.key);
      if (place) {
        event.preventDefault();
        navigate(to(place[1]));
      }
      return;
    }
    if (event.key === "g") waitsUntil = performance.now() + SEQUENCE_MS;
    else if (event.key === "?") commands.help();
    else if (event.key === "/") {
      event.preventDefault();
      const field = document.querySelector("[data-search]");
      if (field) field.focus();
      else commands.jump();
    } else if (event.key === "\\") commands.theme();
  }
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}
