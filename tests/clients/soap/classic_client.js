// A partner's program on the npm package soap, which reads the WSDL for classic clients.
//
//     node classic_client.js ADDRESS API_KEY USER_ID ACCOUNT_ID

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import * as soap from "soap";

const [address, key, userId, accountId] = process.argv.slice(2);
assert(accountId, "usage: node classic_client.js ADDRESS API_KEY USER_ID ACCOUNT_ID");
const client = await soap.createClientAsync(`${address}/soap/compat?wsdl`);
client.setSecurity(new soap.BearerSecurity(key));

/** Calls an operation with the id of its message, and returns its result. */
async function call(operation, id, parameters) {
  client.clearSoapHeaders();
  client.addSoapHeader(
    `<a:MessageID xmlns:a="http://www.w3.org/2005/08/addressing">urn:uuid:${id}</a:MessageID>`,
  );
  const [response] = await client[`${operation}Async`]({ userId, accountId, ...parameters });
  return response[`${operation}Result`];
}

/** Returns the problem in the fault of a call, which must be refused. */
async function problem(operation, id, parameters) {
  const fault = await call(operation, id, parameters).then(
    () => assert.fail("the request was accepted"),
    (error) => error.root.Envelope.Body.Fault,
  );
  return fault.detail.problem;
}

const depositId = randomUUID();
const first = await call("ReliableInsertMoney", depositId, { amount: 12.5 });
assert.equal(first.StatusForTransaction, "Succeded");
const again = await call("ReliableInsertMoney", depositId, { amount: 12.5 });
assert.deepEqual(again, { ...first, StatusForTransaction: "Completed" });
const reused = await problem("ReliableInsertMoney", depositId, { amount: 12.51 });
assert.equal(reused.code, "idempotency_key_reused");

const withdrawalId = randomUUID();
for (let attempt = 0; attempt < 2; attempt += 1) {
  const rejected = await call("ReliableWithDrawMoney", withdrawalId, { amount: 12.51 });
  assert.equal(rejected.StatusForTransaction, "Failed");
  assert.equal(rejected.Message, "insufficient_funds");
}
const paid = await call("ReliableWithDrawMoney", randomUUID(), { amount: 2.25 });
assert.equal(paid.StatusForTransaction, "Succeded");
const inexact = await problem("ReliableInsertMoney", randomUUID(), { amount: 0.1 + 0.2 });
assert.equal(inexact.violations.i.field, "amount");

const balance = await call("GetUserAccountBalance", randomUUID(), {});
assert.equal(String(balance), "10.25");
console.log("all steps succeeded");
