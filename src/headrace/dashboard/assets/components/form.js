/** Fields with a label, a hint and the reason why a value does not fit. */
import { html, useId } from "../core/html.js";

/** @param {{ label: string, hint?: any, problem?: string, wide?: boolean, children: (props: object) => any }} props */
export function Field({ label, hint, problem, wide = false, children }) {
  const id = useId();
  const described = problem ? `${id}-p` : hint ? `${id}-h` : undefined;
  return html`<div class=${`field ${wide ? "wide" : ""}`}>
    <label for=${id}>${label}</label>
    ${children({ id, "aria-describedby": described, "aria-invalid": problem ? "true" : undefined })}
    ${problem ? html`<span class="problem" id=${`${id}-p`}>${problem}</span>` : hint ? html`<span class="hint" id=${`${id}-h`}>${hint}</span>` : null}
  </div>`;
}

/** A field for a line of text. `...rest` goes to the input: type, placeholder, required, min, autocomplete. */
export function TextField({ label, hint, problem, wide, value, onValue, mono = false, ...rest }) {
  return html`<${Field} label=${label} hint=${hint} problem=${problem} wide=${wide}>
    ${(props) => html`<input ...${props} ...${rest} class=${`input ${mono ? "mono" : ""}`} spellcheck=${false} value=${value} onInput=${(event) => onValue(event.target.value)} />`}
  <//>`;
}

export function TextArea({ label, hint, problem, wide = true, value, onValue, rows = 6, ...rest }) {
  return html`<${Field} label=${label} hint=${hint} problem=${problem} wide=${wide}>
    ${(props) => html`<textarea ...${props} ...${rest} class="input" rows=${rows} spellcheck=${false} value=${value} onInput=${(event) => onValue(event.target.value)}></textarea>`}
  <//>`;
}

/** @param {{ options: [string, string][] }} props */
export function SelectField({ label, hint, wide, value, onValue, options }) {
  return html`<${Field} label=${label} hint=${hint} wide=${wide}>
    ${(props) => html`<select ...${props} class="input" value=${value} onChange=${(event) => onValue(event.target.value)}>
      ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
    </select>`}
  <//>`;
}

/** A select without a visible label, for tool bars. */
export function Choice({ label, value, onValue, options }) {
  return html`<select class="input" aria-label=${label} value=${value} onChange=${(event) => onValue(event.target.value)}>
    ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
  </select>`;
}

export function Check({ label, value, onValue }) {
  return html`<label class="check"><input type="checkbox" checked=${value} onChange=${(event) => onValue(event.target.checked)} />${label}</label>`;
}

/** @param {{ label: string, value: string, onValue: (value: string) => void, options: [string, string][] }} props */
export function Segmented({ label, value, onValue, options }) {
  return html`<div class="segmented" role="group" aria-label=${label}>
    ${options.map(([key, text]) => html`<button type="button" aria-pressed=${key === value ? "true" : "false"} onClick=${() => onValue(key)}>${text}</button>`)}
  </div>`;
}
