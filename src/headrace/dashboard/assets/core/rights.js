/** What the person may do. The broker decides each time; this only leaves out buttons that would be refused. */
import { session } from "./api.js";
import { useStore } from "./store.js";

/** @returns {{ canChange: boolean, may: (right: string) => boolean }} */
export function useRights() {
  const who = useStore(session);
  const canChange = Boolean(who) && !who.read_only;
  return { canChange, may: (right) => canChange && who.can?.[right] !== false };
}
