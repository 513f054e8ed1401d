/** Short histories of numbers in a list, gathered while the list is shown: the list itself has only the newest. */
import { useRef } from "./html.js";

const POINTS = 30;

/**
 * @param {any[]} rows of the newest answer
 * @param {(row: any) => string} key @param {(row: any) => number} value
 * @returns {(row: any) => number[]} the points of a row, oldest first
 */
export function useTrail(rows, key, value) {
  const trails = useRef(new Map());
  const last = useRef(null);
  if (rows && rows !== last.current) {
    last.current = rows;
    for (const row of rows) {
      const points = trails.current.get(key(row)) ?? [];
      trails.current.set(key(row), [...points, value(row) ?? null].slice(-POINTS));
    }
  }
  return (row) => trails.current.get(key(row)) ?? [];
}
