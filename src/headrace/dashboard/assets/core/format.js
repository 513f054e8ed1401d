/** Numbers, sizes, durations and times as text. An unknown value is a dash. */

export const DASH = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 1234567 as 1,234,567 */
export const count = (value) => (isNumber(value) ? plain.format(value) : DASH);

function scaled(value, step, units) {
  let index = 0;
  let rest = Math.abs(value);
  while (rest >= step && index < units.length - 1) {
    rest /= step;
    index += 1;
  }
  const digits = rest >= 100 || index === 0 ? 0 : rest >= 10 ? 1 : 2;
  const text = index === 0 && rest < 10 && !Number.isInteger(rest) ? trimmed(rest.toFixed(rest < 1 ? 2 : 1)) : rest.toFixed(digits);
  return [`${value < 0 ? "-" : ""}${text}`, units[index]];
}

const trimmed = (text) => text.replace(/\.?0+$/, "");

/** 1234567 as 1.23 M */
export function short(value) {
  if (!isNumber(value)) return DASH;
  const [text, unit] = scaled(value, 1000, ["", "k", "M", "G", "T"]);
  return unit ? `${text} ${unit}` : text;
}

/** Number and unit of a size, in powers of 1024 */
export function bytesParts(value) {
  return isNumber(value) ? scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) : [DASH, ""];
}

export const bytes = (value) => bytesParts(value).join(" ").trim();
export const bytesPerSecond = (value) => (isNumber(value) ? `${bytes(value)}/s` : DASH);
export const perSecond = (value) => (isNumber(value) ? `${short(value)}/s` : DASH);

export function ms(value) {
  if (!isNumber(value)) return DASH;
  if (value >= 1000) return duration(value / 1000);
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

/** 3725 as 1 h 2 min */
export function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  if (seconds < 0) return "0 s";
  if (seconds < 10) return `${trimmed(seconds.toFixed(1))} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return pair(minutes, "min", Math.floor(seconds % 60), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return pair(hours, "h", minutes % 60, "min");
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

const pair = (a, unitA, b, unitB) => (b ? `${a} ${unitA} ${b} ${unitB}` : `${a} ${unitA}`);

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });

const date = (value) => (value === null || value === undefined || value === "" ? null : new Date(value));
const isDate = (value) => value && !Number.isNaN(value.getTime());

/** 14:03:07 */
export function clock(value) {
  const at = date(value);
  return isDate(at) ? clockFormat.format(at) : DASH;
}

/** 2026-11-17 14:03:07.123 in the time zone of the browser */
export function time(value, { withMs = false } = {}) {
  const at = date(value);
  if (!isDate(at)) return DASH;
  const tail = withMs ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
  return `${dayFormat.format(at)} ${clockFormat.format(at)}${tail}`;
}

/** "3 min ago" */
export function ago(value) {
  const at = date(value);
  if (!isDate(at)) return DASH;
  const seconds = (Date.now() - at.getTime()) / 1000;
  return seconds < 5 && seconds > -5 ? "just now" : seconds < 0 ? `in ${coarse(-seconds)}` : `${coarse(seconds)} ago`;
}

/** One unit only: 3 min, 2 h, 5 d */
export function coarse(seconds) {
  if (!isNumber(seconds)) return DASH;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 86400 * 2) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** "1 topic", "3 topics" */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** "1 message is", "3 messages are" */
export const pluralAre = (number, one, many) => `${plural(number, one, many)} ${number === 1 ? "is" : "are"}`;
