/** The one place that knows of Preact and htm: every other module imports from here. Text in a template is escaped by Preact. */
import { h, render, Fragment, Component, createContext } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment, Component, createContext };
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/preact-hooks.js";
