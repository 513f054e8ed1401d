/** Light or dark: the system's setting until one is chosen, which is stored in the browser. */
import { createStore } from "./store.js";

const KEY = "headrace.theme";
const CHOICES = ["system", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");

const chosen = () => document.documentElement.dataset.theme ?? "system";
const shown = (choice) => (choice === "system" ? (system.matches ? "dark" : "light") : choice);

export const theme = createStore({ choice: chosen(), shown: shown(chosen()) });

system.addEventListener("change", () => theme.set({ choice: chosen(), shown: shown(chosen()) }));

export function setTheme(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  try {
    if (choice === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
  } catch {
    // Without storage it holds until the page is closed.
  }
  theme.set({ choice, shown: shown(choice) });
}

export const nextTheme = () => setTheme(CHOICES[(CHOICES.indexOf(theme.get().choice) + 1) % CHOICES.length]);
