// A partner's program on the types that openapi-typescript generates from the OpenAPI document, with openapi-fetch.
//
//     node first_deposit.js ADDRESS API_KEY

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import createClient from "openapi-fetch";

import type { components, paths } from "./openapi.js";

type Schemas = components["schemas"];
/** Whether two types are the same; `any` and `unknown` are the same as no other type. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

// The members have types of their own. The compiler checks this.
const typed: [
  Same<Schemas["Transaction"]["reference"], string | undefined>,
  Same<Schemas["Transaction"]["metadata"], { [name: string]: string } | undefined>,
  Same<Schemas["Account"]["holder"], Schemas["Holder"] | undefined>,
  Same<Schemas["Holder"]["given_name"], string>,
  Same<Schemas["TransactionRequest"]["reference"], string | null | undefined>,
  Same<Schemas["OpenAccountRequest"]["currency"], string>,
] = [true, true, true, true, true, true];
assert(typed.every(Boolean));

const [baseUrl, key] = process.argv.slice(2);
assert(baseUrl && key, "usage: node first_deposit.js ADDRESS API_KEY");
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
const path = { user_id: randomUUID(), account_id: randomUUID() };
const ACCOUNT = "/v1/users/{user_id}/accounts/{account_id}";

// The account has a holder.
const holder: Schemas["Holder"] = { given_name: "Ada", family_name: "Byron" };
const opened = await client.PUT(ACCOUNT, { params: { path }, body: { currency: "EUR", holder } });
assert.equal(opened.response.status, 201);
assert.deepEqual(opened.data?.holder, holder);

// The first deposit, and the same request again.
const depositId = randomUUID();
const deposit = (amount: string) =>
  client.POST(`${ACCOUNT}/deposits`, {
    params: { path, header: { "Idempotency-Key": depositId, Prefer: "wait=30" } },
    body: { amount, currency: "EUR", reference: "invoice 7", metadata: { shop: "12" } },
  });
const posted = (await deposit("125.50")).data;
assert(posted);
assert.equal(posted.status, "posted");
assert.equal(posted.balance_after, "125.50");
assert.equal(posted.reference, "invoice 7");
assert.deepEqual(posted.metadata, { shop: "12" });
const again = await deposit("125.50");
assert.equal(again.response.headers.get("Idempotent-Replayed"), "true");
assert.deepEqual(again.data, posted);

// The id cannot be used again for another amount.
const refused = await deposit("125.51");
const problem: Schemas["Problem"] | undefined = refused.error;
assert.equal(problem?.status, 422);
assert.equal(problem?.code, "idempotency_key_reused");

// A withdrawal of more than the balance is rejected, which is a result.
const rejected = await client.POST(`${ACCOUNT}/withdrawals`, {
  params: { path, header: { "Idempotency-Key": randomUUID(), Prefer: "wait=30" } },
  body: { amount: "125.51", currency: "EUR" },
});
assert.equal(rejected.response.status, 200);
assert.equal(rejected.data?.status, "rejected");
assert.equal(rejected.data?.reason, "insufficient_funds");

// The statement.
const page = await client.GET(`${ACCOUNT}/transactions`, { params: { path } });
assert.deepEqual(page.data?.transactions, [posted]);
console.log("all steps succeeded");
