import { useEffect, useRef, useState } from "preact/hooks";
import { connection, connectNow, gateway, isLoaded, logOut, problem, type Connection } from "./gateway";
import { useKeys } from "./parts/keys";
import { Dialog, EmptyState } from "./parts/small";
import { goTo, route, writeHash } from "./router";
import { switchTheme, theme } from "./theme";
import { NAVIGATION, VIEWS } from "./views";
import { Login } from "./views/login";

export function App() {
  const [isHelpOpen, setHelpOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const { view, args, query } = route.value;
  const shown = VIEWS[view];
  const page = [view, args[0]].join("/");
  const firstPage = useRef(page);

  useEffect(() => {
    document.title = [shown?.title ?? "Not found", args[0] && ` ${args[0]}`, " · Toolwire"].join("");
    if (firstPage.current === page) return;
    firstPage.current = "";
    main.current?.focus({ preventScroll: true });
  }, [page]);

  const goToView = (name: string) => () => goTo(writeHash(name));
  useKeys({
    "?": () => setHelpOpen(true),
    t: switchTheme,
    ...Object.fromEntries(NAVIGATION.map((name, index) => [String(index + 1), goToView(name)])),
  });

  return (
    <>
      <a class="skip-link" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <header class="top-bar">
        <a class="brand" href={writeHash("live")} aria-label="Toolwire, live exchanges">
          <svg viewBox="0 0 32 32" width="20" height="20" aria-hidden="true">
            <rect width="32" height="32" rx="7" class="brand-back" />
            <path d="M6 11h9m-4-4 4 4-4 4M26 21h-9m4-4-4 4 4 4" class="brand-lines" />
          </svg>
          <span class="brand-name">Toolwire</span>
        </a>
        <nav class="navigation" aria-label="Views">
          {NAVIGATION.map((name) => (
            <a key={name} href={writeHash(name)} aria-current={shown?.nav === name ? "page" : undefined}>
              {VIEWS[name]!.title}
            </a>
          ))}
        </nav>
        <ConnectionStatus />
        {gateway.value?.can_log_out && connection.value !== "login" && (
          <button type="button" class="button quiet" onClick={() => void logOut()}>
            Log out
          </button>
        )}
        <button type="button" class="button quiet icon-button" onClick={switchTheme} title="Light, dark or as the system (t)" aria-label={`Theme: ${theme.value}`}>
          <ThemeIcon />
        </button>
        <button type="button" class="button quiet icon-button" onClick={() => setHelpOpen(true)} title="Keys (?)" aria-label="Keys">
          ?
        </button>
      </header>
      {connection.value === "gone" && (
        <div class="banner tone-bad" role="alert">
          <strong>The gateway is gone.</strong> <span>{problem}</span> <span>Trying again by itself.</span>
          <button type="button" class="button" onClick={connectNow}>
            Try now
          </button>
        </div>
      )}
      <main id="main" class="main" ref={main} tabIndex={-1}>
        {connection.value === "login" ? (
          <Login />
        ) : !shown ? (
          <EmptyState title="There is no such view" isPage>
            <a href={writeHash("live")}>Live exchanges</a>
          </EmptyState>
        ) : !isLoaded.value ? (
          <p class="loading" role="status">
            {connection.value === "gone" ? "" : "Connecting…"}
          </p>
        ) : (
          <shown.component key={view} args={args} query={query} />
        )}
      </main>
      {isHelpOpen && <KeysHelp onClose={() => setHelpOpen(false)} />}
    </>
  );
}

const STATUS: Record<Connection, string> = { connecting: "Connecting", open: "Connected", gone: "Not connected", login: "Locked" };

function ConnectionStatus() {
  const state = gateway.value;
  return (
    <span class={`connection connection-${connection.value}`} role="status" title={state ? `Toolwire ${state.version}` : undefined}>
      <span class="dot" aria-hidden="true" />
      <span class="connection-text">
        {STATUS[connection.value]}
        {state && connection.value === "open" && <span class="muted version"> {state.version}</span>}
      </span>
    </span>
  );
}

const THEME_PATHS = {
  auto: "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13M8 1.5v13",
  light: "M8 5a3 3 0 1 0 0 6a3 3 0 1 0 0-6M8 .8v1.7M8 13.5v1.7M.8 8h1.7M13.5 8h1.7M2.9 2.9l1.2 1.2M11.9 11.9l1.2 1.2M2.9 13.1l1.2-1.2M11.9 4.1l1.2-1.2",
  dark: "M13.5 9.8A6 6 0 1 1 6.2 2.5a4.8 4.8 0 0 0 7.3 7.3Z",
};

function ThemeIcon() {
  return (
    <svg class="line-icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={THEME_PATHS[theme.value]} />
      {theme.value === "auto" && <path d="M8 1.5a6.5 6.5 0 0 1 0 13Z" class="filled" />}
    </svg>
  );
}

const KEYS: readonly [string, string][] = [
  ["j  k  ↓  ↑", "next, previous row"],
  ["Enter", "open the row"],
  ["Esc", "back; leave a field"],
  ["/", "filter"],
  ["p", "pause the list"],
  ["[  ]", "newer, older exchange"],
  ["← →", "in a tree: fold, unfold; in tabs: switch"],
  ["1 … 7", "views"],
  ["t", "theme"],
  ["?", "these keys"],
];

function KeysHelp({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              {keys.split("  ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
