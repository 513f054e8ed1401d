/** The dashboard's entry: finds the session, then the page that the path names. */
import { html, render, useEffect, useErrorBoundary } from "./core/html.js";
import { get, session } from "./core/api.js";
import { followLinks, match, navigate, to, usePlace } from "./core/router.js";
import { useStore } from "./core/store.js";
import { Failed, SkeletonPage } from "./components/states.js";
import { Shell } from "./components/shell.js";
import { ROUTES } from "./pages/routes.js";
import { LoginPage } from "./pages/login.js";
import { NotFoundPage } from "./pages/not_found.js";

const RETRY_MS = 2000;

/** Ask who is logged in; while the broker is away, again and again. */
async function findSession() {
  try {
    session.set(await get("/session"));
  } catch (error) {
    if (error.status === 0) setTimeout(findSession, RETRY_MS);
    session.set((now) => now ?? { error });
  }
}

function App() {
  const { path, query } = usePlace();
  const who = useStore(session);
  const needsLogin = who && (who.needsLogin || (who.authentication && !who.user));
  useEffect(() => {
    if (needsLogin && path !== to("login")) navigate(`${to("login")}?next=${encodeURIComponent(path + location.search)}`, { replace: true });
  }, [needsLogin, path]);
  if (path === to("login") || needsLogin) return html`<${LoginPage} next=${query.get("next")} onLogin=${findSession} />`;
  const found = match(path, ROUTES);
  return html`<${Shell}><${Guarded} key=${path}>
    ${who?.error && who.error.status !== 401
      ? html`<div class="card"><${Failed} error=${who.error} retry=${findSession} /></div>`
      : !who
        ? html`<${SkeletonPage} />`
        : found
          ? html`<${found.page} ...${found.params} />`
          : html`<${NotFoundPage} path=${path} />`}
  <//><//>`;
}

/** A mistake in one page must not take the frame with it. */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((cause) => console.error(cause));
  if (!error) return children;
  const shown = new Error("The dashboard made a mistake with this page. The console of the browser has the details.");
  return html`<div class="card"><${Failed} error=${shown} retry=${reset} /></div>`;
}

findSession();
followLinks(document);
render(html`<${App} />`, document.getElementById("app"));
