/** Dialogs on the browser's own `dialog`: focus stays inside, Escape closes, and the focus returns where it was. */
import { html, useEffect, useId, useRef, useState } from "../core/html.js";
import { Icon } from "./icons.js";
import { ErrorNotice } from "./states.js";

/** @param {{ title: string, onClose: () => void, wide?: boolean, children: any, foot?: any, onSubmit?: (event: Event) => void }} props */
export function Dialog({ title, onClose, wide = false, children, foot, onSubmit }) {
  const node = useRef(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    node.current.showModal();
    return () => before?.focus?.();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    onSubmit?.(event);
  };
  return html`<dialog
    ref=${node}
    class=${wide ? "wide" : ""}
    aria-labelledby=${id}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
    onMouseDown=${(event) => event.target === node.current && onClose()}
  >
    <form method="dialog" onSubmit=${submit}>
      <div class="dialog-head">
        <h2 id=${id}>${title}</h2>
        <button type="button" class="button quiet icon-only" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
      </div>
      <div class="dialog-body">${children}</div>
      ${foot && html`<div class="dialog-foot">${foot}</div>`}
    </form>
  </dialog>`;
}

/**
 * Asks before something happens, and names it. `run` may fail: the dialog stays with the reason.
 * @param {{ title: string, action: string, danger?: boolean, consequences?: any[], typed?: string, run: () => Promise<any>, onClose: () => void, children?: any }} props
 *   `typed` must be typed in before the action is possible
 */
export function Confirm({ title, action, danger = false, consequences = [], typed, run, onClose, children }) {
  const [text, setText] = useState("");
  const { isBusy, error, start } = useAction(run, onClose);
  const blocked = isBusy || (typed !== undefined && text !== typed);
  const id = useId();
  return html`<${Dialog}
    title=${title}
    onClose=${onClose}
    onSubmit=${() => !blocked && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button type="submit" class=${`button ${danger ? "danger solid" : "primary"}`} disabled=${blocked}>${isBusy ? "Working…" : action}</button>`}
  >
    ${children}
    ${consequences.length > 0 && html`<ul class="consequences">${consequences.map((each) => html`<li>${each}</li>`)}</ul>`}
    ${typed !== undefined &&
    html`<div class="field">
      <label for=${id}>Type <code>${typed}</code> to confirm</label>
      <input id=${id} class="input mono" autocomplete="off" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} />
    </div>`}
    <${ErrorNotice} error=${error} />
  <//>`;
}

/** State of an action that a person starts: busy while it runs, then closed, or the error. */
export function useAction(run, onDone) {
  const [state, setState] = useState({ isBusy: false, error: null });
  async function start(...args) {
    setState({ isBusy: true, error: null });
    try {
      const result = await run(...args);
      setState({ isBusy: false, error: null });
      onDone?.(result);
    } catch (error) {
      setState({ isBusy: false, error });
    }
  }
  return { ...state, start };
}
