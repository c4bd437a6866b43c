"""Valid data for schemathesis, where what is valid depends on the state of the bank.

A schema says what a request must look like. That a message id is not used twice for other content, that
money comes in the currency of the account, how many bytes are too many, that a cursor came with an earlier page and that a time lies
ahead is beyond any schema. So requests that are meant to be valid are made so here, from the answers of
the bank to earlier ones. No operation is left out, and no answer is judged here; requests that are meant to be
invalid go as they are, but for signatures.
"""

import base64
import hashlib
import json
import re
import uuid
from datetime import datetime, timedelta, timezone

import requests
import schemathesis
from lxml import etree

# What stands where in the bodies of each format.
NAMES = {
    "json": {"currency": ("currency",), "amount": ("amount",), "overdraft_limit": ("overdraft_limit",)},
    "xml": {"currency": ("Currency",), "amount": ("Amount",), "overdraft_limit": ("OverdraftLimit",)},
    "wwi": {"currency": ("Value", "CurrencyCode"), "amount": ("Value", "Money"), "overdraft_limit": ("CreditLine",)},
}
# The lists of names with texts: the list, a name.
PAIRS = {"xml": ("Metadata", "Name"), "wwi": ("Tags", "Key")}
# The elements of answers in XML, by what they are called in JSON.
ELEMENTS = {
    "UserId": "user_id", "AccountId": "account_id", "MessageId": "message_id", "Currency": "currency",
    "Balance": "balance", "NextCursor": "next_cursor", "Customer": "user_id", "AccountNo": "account_id",
    "BookingNo": "message_id", "CurrencyCode": "currency", "Balances": "balance", "ContinueAt": "next_cursor",
}  # fmt: skip
# Most bytes of metadata, and of members that are not known.
BYTES_MAX = 2048
# The currency of each account that is open, by user and account.
CURRENCIES = {}
# The content that each message id was accepted with, by user, account and id.
CONTENTS = {}
# The partners that were seen, by path.
PARTNERS = set()
# The partner whose key the requests come with.
TESTER = "bootstrap"
# A public key of Ed25519: not every 32 bytes are one.
PUBLIC_KEY = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs="
# The cursors that pages came with, by listing.
CURSORS = {}


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None:
        return
    # Requests without a key, or with a wrong one, go as they are.
    if str(getattr(case.meta.phase.data, "parameter", None)).lower() != "authorization":
        sign_nothing_and_digest_right(case)
    if not case.meta.generation.mode.is_positive:
        return
    if "cursor" in (case.query or {}):
        use_a_known_cursor(case)
    operation = case.operation.definition.raw.get("operationId")
    if operation in ("submit_deposit", "submit_withdrawal"):
        use_the_currency_of_the_account(case, "amount")
        keep_to_the_size(case)
        use_a_message_id_once(case)
    elif operation == "change_account":
        use_the_currency_of_the_account(case, "overdraft_limit")
    elif operation == "change_gate":
        release_later(case)
    elif operation == "put_partner":
        name_the_last_state(case)
        stay_able_to_test(case)
    elif operation == "add_partner_signature_key":
        use_a_key_that_is_one(case)
    digest_right(case)


@schemathesis.hook
def after_call(context, case, response):
    media_type = response.headers["content-type"][0]
    if response.status_code not in (200, 201, 202):
        return
    if "json" in media_type:
        answer = response.json()
    elif "xml" in media_type:
        children = etree.fromstring(response.content)
        answer = {ELEMENTS.get(etree.QName(child).localname): child.text or "…" for child in children}
    else:
        return
    if "etag" in response.headers:
        PARTNERS.add(case.formatted_path)
    if "currency" in answer and "balance" in answer:
        CURRENCIES[answer["user_id"], answer["account_id"]] = answer["currency"]
    if "message_id" in answer and case.method == "POST":
        key = answer["user_id"], answer["account_id"], answer["message_id"]
        CONTENTS.setdefault(key, content(case))
    if answer.get("next_cursor"):
        CURSORS.setdefault(listing(case), []).append(answer["next_cursor"])


def account(case):
    return tuple(str(case.path_parameters[name]).lower() for name in ("user_id", "account_id"))


def content(case):
    return json.dumps([case.operation.path, case.body], sort_keys=True, default=str)


def listing(case):
    query = case.query or {}
    return case.formatted_path.lower(), query.get("status", "posted"), query.get("resolved")


def use_a_known_cursor(case):
    known = CURSORS.get(listing(case))
    if not known:
        del case.query["cursor"]
    elif case.query["cursor"] not in known:
        case.query["cursor"] = known[-1]


def use_the_currency_of_the_account(case, money):
    """The currency, and an amount that has no more decimals than it."""
    currency = CURRENCIES.get(account(case))
    if currency is None or not isinstance(case.body, dict):
        return
    names = NAMES[format_of(case)]
    put(case.body, names["currency"], lambda _: currency)
    pattern = pattern_of(case, currency, money)

    def fitting(told):
        if not isinstance(told, dict):
            return told if not isinstance(told, str) or re.search(pattern, told) else "1"
        decimals = int(told["Decimals"])
        digits = told["Digits"].rjust(decimals + 1, "0")
        number = f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits
        return told if re.search(pattern, number) else told | {"Digits": "1", "Decimals": "0"}

    put(case.body, names[money], fitting)


def format_of(case):
    media_type = case.media_type or "application/json"
    return "wwi" if "wwi" in media_type else "xml" if "xml" in media_type else "json"


def put(body, path, change):
    """Changes what is at a path, if something is."""
    *outer, last = path
    for name in outer:
        body = body.get(name, {})
    if isinstance(body, dict) and last in body:
        body[last] = change(body[last])


def keep_to_the_size(case):
    """Leaves out what has more bytes than a request may have of its kind."""
    if not isinstance(case.body, dict):
        return
    if format_of(case) in PAIRS:
        keep_pairs_apart(case.body, *PAIRS[format_of(case)])
        return
    known = case.operation.schema.raw_schema["components"]["schemas"]["TransactionRequest"]["properties"]
    unknown = {name: value for name, value in case.body.items() if name not in known}
    parts = [*unknown, "metadata"] if size(unknown) > BYTES_MAX else ["metadata"]
    for name in parts:
        if name != "metadata" or size(case.body.get(name)) > BYTES_MAX:
            case.body.pop(name, None)


def keep_pairs_apart(body, pairs, name):
    """No name twice: a schema cannot say that of a list. A name that is null is written as the word."""
    named = {str(pair[name] if pair[name] is not None else "null"): pair for pair in body.get(pairs) or []}
    if pairs in body:
        body[pairs] = list(named.values()) if size(body[pairs]) <= BYTES_MAX else []


def size(value):
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def pattern_of(case, currency, money):
    schemas = case.operation.schema.raw_schema["components"]["schemas"]
    request = schemas["TransactionRequest" if money == "amount" else "OpenAccountRequest"]
    groups = (group["properties"] for group in request["oneOf"])
    return next(group[money]["pattern"] for group in groups if currency in group["currency"]["enum"])


def use_a_message_id_once(case):
    """Another id for other content."""
    message = str(case.headers["Idempotency-Key"]).strip('"').lower()
    known = CONTENTS.get((*account(case), message))
    if known not in (None, content(case)):
        case.headers["Idempotency-Key"] = str(uuid.uuid5(uuid.UUID(message), content(case)))


def release_later(case):
    """A gate is released in the future."""
    soon = datetime.now(timezone.utc) + timedelta(minutes=10)
    release_at = case.body.get("release_at") if isinstance(case.body, dict) else None
    if isinstance(release_at, str) and datetime.fromisoformat(release_at.upper()) < soon:
        case.body["release_at"] = "2099-12-31T23:59:59Z"


def name_the_last_state(case):
    """A change is refused when somebody else was faster; any state will do for a partner that is known."""
    if case.headers and case.headers.pop("If-Match", None) and case.formatted_path in PARTNERS:
        case.headers["If-Match"] = "*"


def stay_able_to_test(case):
    """Whoever takes reach and rate from itself finds nothing more."""
    if case.path_parameters["partner_id"] == TESTER and isinstance(case.body, dict):
        case.body["reach"] = {"everything": True}
        case.body["rate"] = None


def use_a_key_that_is_one(case):
    if not isinstance(case.body, dict) or "material" not in case.body:
        return
    secret = hashlib.sha256(case.body["material"].encode("utf-8", "replace")).digest()
    is_public = case.body.get("algorithm") == "ed25519"
    case.body["material"] = PUBLIC_KEY if is_public else base64.b64encode(secret).decode()


def sign_nothing_and_digest_right(case):
    """A signature is of one request of one partner with a key for it, and a digest of one body. Random ones
    would only hide what else is wrong with a request."""
    for name in ("Signature", "Signature-Input"):
        (case.headers or {}).pop(name, None)
    digest_right(case)


def digest_right(case):
    if "Content-Digest" in (case.headers or {}):
        body = requests.Request(**case.as_transport_kwargs()).prepare().body or b""
        digest = hashlib.sha256(body.encode() if isinstance(body, str) else body).digest()
        case.headers["Content-Digest"] = f"sha-256=:{base64.b64encode(digest).decode()}:"
