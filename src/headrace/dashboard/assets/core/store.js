/** A value that components watch. */
import { useEffect, useState } from "./html.js";

/**
 * @template T
 * @param {T} initial
 */
export function createStore(initial) {
  let value = initial;
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      const changed = typeof next === "function" ? next(value) : next;
      if (Object.is(changed, value)) return;
      value = changed;
      for (const each of [...watchers]) each(value);
    },
    watch(each) {
      watchers.add(each);
      return () => watchers.delete(each);
    },
  };
}

/** The value of a store; the component is drawn again when it changes. */
export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(store.get());
    return store.watch(setValue);
  }, [store]);
  return value;
}
