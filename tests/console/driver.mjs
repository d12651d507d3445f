// Chromium for the tests: reads commands as lines of JSON, runs each with playwright-core, and prints its answer as a line.
// The tests are in Python, next to the gateway and the providers that they control.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executable, folder, patience] = process.argv.slice(2);
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // A request to another host would be recorded, and would still reach nobody.
  "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
];
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const AXE_RULES = { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"] };

process.env.TMPDIR = folder; // Chromium's profile is made in it
const browser = await chromium.launch({ executablePath: executable, args: FLAGS, headless: true });
const pages = new Map();

/** A page with a profile of its own, and everything that a test may want to know about it afterwards. */
async function open({ width = 1280, height = 800, theme = "light" }) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: theme,
    reducedMotion: "reduce",
    permissions: ["clipboard-read", "clipboard-write"],
    locale: "en-GB",
    timezoneId: "UTC",
  });
  context.setDefaultTimeout(Number(patience));
  const page = await context.newPage();
  const seen = { requests: [], problems: [], dialogs: [], answers: [], popups: 0 };
  page.on("request", (request) => seen.requests.push(request.url()));
  page.on("pageerror", (error) => seen.problems.push(String(error.stack ?? error)));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) seen.problems.push(`${message.type()}: ${message.text()} ${message.location().url}`);
  });
  page.on("dialog", (dialog) => (seen.dialogs.push(dialog.message()), dialog.dismiss()));
  page.on("popup", () => seen.popups++);
  page.on("response", async (response) => {
    if (!/\/console\/api\/(?!v1\/events)/.test(response.url())) return; // the live events never end
    const text = await response.text().catch(() => ""); // the page may have moved on
    seen.answers.push(text);
  });
  const id = `page-${pages.size + 1}`;
  pages.set(id, { page, seen });
  return id;
}

async function runAxe(page) {
  const isThere = await page.evaluate(() => "axe" in globalThis);
  if (!isThere) await page.evaluate(AXE);
  const { violations } = await page.evaluate((rules) => globalThis.axe.run(document, rules), AXE_RULES);
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target.join(" ")} (${node.any[0]?.message ?? node.all[0]?.message ?? node.none[0]?.message ?? ""})`).join("; ")}`);
}

/** Playwright's own `waitForFunction` makes code of a text in the page, which its Content-Security-Policy forbids. */
async function waitUntil(page, holds, says) {
  const end = Date.now() + Number(patience);
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`in vain: ${await says()}`);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(done)));
  }
}

async function waitForText(page, selector, words) {
  const read = async () => (await page.locator(selector).innerText()).replace(/\s+/g, " ");
  const missing = (text) => words.filter((word) => !text.includes(word));
  await waitUntil(page, async () => missing(await read()).length === 0, async () => `${missing(await read()).join(", ")} in ${await read()}`);
}

async function waitForCount(page, selector, count) {
  const read = () => page.locator(selector).count();
  await waitUntil(page, async () => (await read()) === count, async () => `${count} of ${selector}: ${await read()}`);
}

const COMMANDS = {
  open,
  quit: () => browser.close(),
  close: async ({ page }) => {
    await pages.get(page).page.context().close();
    pages.delete(page);
  },
  seen: ({ page }) => pages.get(page).seen,
  axe: ({ page }) => runAxe(pages.get(page).page),
  waitUntil: ({ page, expression }) => {
    const target = pages.get(page).page;
    return waitUntil(target, () => target.evaluate(expression), () => expression);
  },
  waitForText: ({ page, selector, words }) => waitForText(pages.get(page).page, selector, words),
  waitForCount: ({ page, selector, count }) => waitForCount(pages.get(page).page, selector, count),
  // Any method of playwright's Page, Keyboard or Locator whose arguments and answer are JSON.
  page: ({ page, method, args }) => pages.get(page).page[method](...args),
  keyboard: ({ page, method, args }) => pages.get(page).page.keyboard[method](...args),
  locator: ({ page, selector, method, args }) => pages.get(page).page.locator(selector)[method](...args),
  download: async ({ page, selector }) => {
    const target = pages.get(page).page;
    const [download] = await Promise.all([target.waitForEvent("download"), target.locator(selector).click()]);
    return readFileSync(await download.path(), "utf8");
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...rest } = JSON.parse(line);
  let answer;
  try {
    const value = await COMMANDS[command](rest);
    answer = { value: value && typeof value === "object" && !Array.isArray(value) && value.constructor !== Object ? null : (value ?? null) };
  } catch (error) {
    answer = { error: String(error.message ?? error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
  if (command === "quit") process.exit(0);
}
