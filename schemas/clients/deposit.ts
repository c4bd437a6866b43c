#!/usr/bin/env node
/** Deposits money at a Postonce bank, exactly once, whatever the network does. Needs Node.js 20 and nothing else.
 *
 *     POSTONCE_API_KEY=po_... node deposit.ts USER ACCOUNT AMOUNT CURRENCY REFERENCE [MESSAGE_ID]
 *
 *  (Node.js before 22.18 cannot run TypeScript: compile it first, or use tsx.)
 *  The key needs the scopes deposit and read. Prints one line, and exits with
 *      0  posted    the money is on the account
 *      3  rejected  a final answer, for example because the account is closed; a new payment needs a new id
 *      4  refused   the request is wrong, and this run posted nothing; correct it, and use the same id
 *      5  unknown   there is no final answer yet, and the money may have moved; run again with the same MESSAGE_ID
 *      2  wrong usage, before anything was sent. Any other code, such as that of a crash, means unknown.
 */
import { randomUUID } from "node:crypto";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

function usage(message: string): never {
  console.error(message);
  process.exit(2);
}

/** A variable without line ends after it. Its value is never shown, because it may be a secret. */
function setting(name: string, fallback: string, allowed: RegExp, rule: string): string {
  const value = (process.env[name] ?? fallback).replace(/[\r\n]+$/, "");
  return allowed.test(value) ? value : usage(`${name} must be ${rule}`);
}

const host = /[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\]/.source;
const port = /[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]/.source;
const httpUrl = new RegExp(`^https?://(${host})(:(${port}))?(/[A-Za-z0-9._~%/-]*)?$`);
const key = setting("POSTONCE_API_KEY", "", /^[!-~]+$/, "set to visible ASCII characters, without spaces");
const address = setting("POSTONCE_URL", "http://127.0.0.1:8080", httpUrl, "an address such as https://bank.example");
const bank = address.replace(/\/+$/, "");
// Longer than the wait in the header Prefer.
const attemptMs = Number(setting("POSTONCE_ATTEMPT_S", "15", /^[1-9][0-9]{0,5}$/, "a number of seconds")) * 1000;
const giveUpMs = Number(setting("POSTONCE_GIVE_UP_S", "300", /^[0-9]{1,6}$/, "a number of seconds")) * 1000;
const [delayMinMs, delayMaxMs] = [200, 10_000];

/** The members that are used here, of a transaction or of a problem. Others may be added at any time. */
interface Answer {
  status?: string | number;
  order_number?: string;
  balance_after?: string;
  reason?: string;
  code?: string;
  detail?: string;
}
type Outcome = { exitCode: number; line: string };

/** Sends the same request until the answer is final, or the time is over. */
async function deposit(account: string, messageId: string, body: string): Promise<Outcome> {
  const giveUpAt = performance.now() + giveUpMs;
  let [method, path, delayMs, mayBePosted] = ["POST", `${account}/deposits`, delayMinMs, false];
  const unknown = (last: string): Outcome => ({ exitCode: 5, line: `unknown ${messageId} ${last}` });
  for (;;) {
    let [status, retryAfterMs, answer, last] = [0, 0, {} as Answer, "no answer"];
    try {
      const limitMs = Math.max(1000, Math.ceil(Math.min(attemptMs, giveUpAt - performance.now())));
      [status, retryAfterMs, answer] = await send(method, path, messageId, body, limitMs);
      last = `${status} ${answer.code ?? answer.status ?? "-"}`;
    } catch (error) {
      console.error(`no answer: ${error instanceof Error && error.cause instanceof Error ? error.cause : error}`);
    }
    if (status === 200 || status === 202) {
      if (answer.status === "posted") {
        return { exitCode: 0, line: `posted ${messageId} ${answer.order_number} ${answer.balance_after}` };
      }
      if (answer.status === "rejected") return { exitCode: 3, line: `rejected ${messageId} ${answer.reason}` };
      // It is queued. From now on it is enough to read it.
      if (answer.status === "accepted") [method, path] = ["GET", `${account}/transactions/${messageId}`];
    } else if (status >= 300 && status < 500 && status !== 408 && status !== 429) {
      if (mayBePosted) return unknown(last); // This attempt did nothing, but an earlier one may have.
      console.error(printable(JSON.stringify(answer)));
      return { exitCode: 4, line: `refused ${messageId} ${last}: ${answer.detail ?? "-"}` };
    }
    if (status !== 429) mayBePosted = true; // Such a request was not processed. Any other may have been.
    const pauseMs = Math.max(retryAfterMs, (delayMs * (1 + Math.random())) / 2);
    delayMs = Math.min(delayMs * 2, delayMaxMs);
    if (performance.now() + pauseMs >= giveUpAt) return unknown(last);
    console.error(`${last}; the next attempt is in ${(pauseMs / 1000).toFixed(1)} s`);
    await sleep(pauseMs);
  }
}

/** Returns status, Retry-After in milliseconds, and the body. Throws if there is no complete answer in time. */
async function send(
  method: string, path: string, messageId: string, body: string, limitMs: number,
): Promise<[number, number, Answer]> {
  const headers: Record<string, string> = { Authorization: `Bearer ${key}`, Accept: "application/json" };
  if (method === "POST") {
    Object.assign(headers, { "Content-Type": "application/json", "Idempotency-Key": messageId, Prefer: "wait=5" });
  }
  // Not AbortSignal.timeout: Node.js would exit during an attempt of which nothing but such a limit is left.
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(new Error("the time for the attempt is over")), limitMs);
  try {
    const response = await fetch(bank + path, {
      method, headers, body: method === "POST" ? body : null, redirect: "manual", signal: limit.signal,
    });
    const text = await response.text();
    const retryAfter = response.headers.get("Retry-After") ?? "";
    return [response.status, /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : 0, parsed(text)];
  } finally {
    clearTimeout(timer);
  }
}

/** Text of a server, without what a terminal would obey. */
function printable(text: string): string {
  return text.replace(/[\p{C}\u2028\u2029]/gu, (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`);
}

function parsed(text: string): Answer {
  try {
    const answer: unknown = JSON.parse(text);
    return typeof answer === "object" && answer !== null ? answer : {};
  } catch {
    return {}; // Not from the bank, but for example from a gateway in front of it.
  }
}

const [user, account, amount, currency, reference, given] = process.argv.slice(2);
if (reference === undefined || process.argv.length > 8) {
  usage("usage: POSTONCE_API_KEY=po_... node deposit.ts USER ACCOUNT AMOUNT CURRENCY REFERENCE [MESSAGE_ID]");
}
if (![user, account, ...(given === undefined ? [] : [given])].every((id) => /^[0-9A-Fa-f-]{32,36}$/.test(id ?? ""))) {
  usage("USER, ACCOUNT and MESSAGE_ID must be UUIDs");
}
// Made once, and the same for every attempt. Store it with your payment BEFORE the first attempt: if this program dies,
// only the same id can tell whether the money moved. A new id would be a second payment.
const messageId = given ?? randomUUID();
console.error(`message id ${messageId}`);
const body = JSON.stringify({ amount, currency, reference });
const { exitCode, line } = await deposit(`/v1/users/${user}/accounts/${account}`, messageId, body);
console.log(printable(line));
if (exitCode === 5) console.error(`The money may have moved. Run again later with the message id ${messageId}.`);
process.exitCode = exitCode;
