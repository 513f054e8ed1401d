/** The login, with the users of the broker. */
import { html, useState } from "../core/html.js";
import { post, session } from "../core/api.js";
import { BASE, navigate } from "../core/router.js";
import { useAction } from "../components/dialog.js";
import { TextField } from "../components/form.js";
import { Logo } from "../components/icons.js";
import { ErrorNotice } from "../components/states.js";
import { useTitle } from "../components/page.js";

/** Only an address of the dashboard: a link to this page must not lead elsewhere. */
const safe = (next) => (next && (next === BASE || next.startsWith(`${BASE}/`) || next.startsWith(`${BASE}?`)) ? next : BASE);

export function LoginPage({ next, onLogin }) {
  useTitle("Log in");
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const { isBusy, error, start } = useAction(
    () => post("/session", { user, password }),
    async (answer) => {
      if (answer?.csrf) session.set(answer);
      await onLogin();
      navigate(safe(next), { replace: true });
    },
  );
  return html`<main class="login">
    <form class="card login-card" onSubmit=${(event) => {
      event.preventDefault();
      start();
    }}>
      <div class="login-head"><${Logo} /><h1>Log in to Headrace</h1><p class="small second">With a user of the broker: the same name and password as your clients.</p></div>
      <${TextField} label="User" value=${user} onValue=${setUser} name="username" autocomplete="username" autofocus required />
      <${TextField} label="Password" type="password" value=${password} onValue=${setPassword} name="password" autocomplete="current-password" required />
      <${ErrorNotice} error=${error} />
      <button class="button primary" disabled=${isBusy || !user || !password}>${isBusy ? "Checking…" : "Log in"}</button>
      <p class="tiny muted">No user yet? On the broker's machine: <code>headrace user create NAME</code></p>
    </form>
  </main>`;
}
