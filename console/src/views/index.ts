// The views of the console: a new one is a line here, and a file beside this one.

import type { ComponentType } from "preact";
import { Compare } from "./compare";
import { Connect } from "./connect";
import { Exchange } from "./exchange";
import { Live } from "./live";
import { Providers } from "./providers";
import { SendAgain } from "./send_again";
import { Session } from "./session";
import { Sessions } from "./sessions";
import { Translate } from "./translate";
import { Try } from "./try";
import { Usage } from "./usage";

export interface ViewProps {
  /** The parts of the address after the view's name: `#/exchange/0-17/request` has two. */
  args: readonly string[];
  query: URLSearchParams;
}

interface View {
  title: string;
  component: ComponentType<ViewProps>;
  /** The view of the navigation that it belongs to. */
  nav: string;
}

export const VIEWS: Readonly<Record<string, View>> = {
  live: { title: "Live", component: Live, nav: "live" },
  exchange: { title: "Exchange", component: Exchange, nav: "live" },
  compare: { title: "Compare", component: Compare, nav: "live" },
  again: { title: "Send again", component: SendAgain, nav: "live" },
  sessions: { title: "Sessions", component: Sessions, nav: "sessions" },
  session: { title: "Session", component: Session, nav: "sessions" },
  translate: { title: "Translate", component: Translate, nav: "translate" },
  try: { title: "Try", component: Try, nav: "try" },
  providers: { title: "Providers", component: Providers, nav: "providers" },
  connect: { title: "Connect", component: Connect, nav: "connect" },
  usage: { title: "Usage", component: Usage, nav: "usage" },
};

export const NAVIGATION: readonly string[] = Object.keys(VIEWS).filter((name) => VIEWS[name]!.nav === name);
