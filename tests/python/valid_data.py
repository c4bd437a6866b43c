"""Valid data for schemathesis, where the validity depends on the state of the bank.

A schema describes the form of a request. It cannot express that a message id must not be reused for other
content, that the currency must be the one of the account, that a size in bytes is limited, that a cursor must
come from an earlier page, or that a time must be in the future. These hooks therefore change requests that are
meant to be valid, by the earlier answers of the bank. No operation is left out, and no answer is judged here.
Requests that are meant to be invalid are not changed, except for their signatures.

The plain document has no rules between members, such as the decimals of each currency. A body by the plain document is
therefore changed until the strict one accepts it too.
"""

import base64
import hashlib
import json
import re
import uuid
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path

import jsonschema_rs
import requests
import schemathesis
from lxml import etree
from schemathesis.transport.serialization import serialize_xml

# The paths of members in the bodies of each format.
NAMES = {
    "json": {"currency": ("currency",), "amount": ("amount",), "overdraft_limit": ("overdraft_limit",)},
    "xml": {"currency": ("Currency",), "amount": ("Amount",), "overdraft_limit": ("OverdraftLimit",)},
    "wwi": {"currency": ("Value", "CurrencyCode"), "amount": ("Value", "Money"), "overdraft_limit": ("CreditLine",)},
}
# The lists of pairs: the list, and the name of a pair.
PAIRS = {"xml": ("Metadata", "Name"), "wwi": ("Tags", "Key")}
# The known elements of a deposit or a withdrawal in the canonical XML; unknown ones are allowed.
XML_ELEMENTS = {"Amount", "Currency", "Reference", "Metadata"}
# The names in JSON of the elements of XML answers.
ELEMENTS = {
    "UserId": "user_id", "AccountId": "account_id", "MessageId": "message_id", "Currency": "currency",
    "Balance": "balance", "NextCursor": "next_cursor", "Customer": "user_id", "AccountNo": "account_id",
    "BookingNo": "message_id", "CurrencyCode": "currency", "Balances": "balance", "ContinueAt": "next_cursor",
}  # fmt: skip
# Maximum size of the metadata, and of unknown members, in bytes.
BYTES_MAX = 2048
# The currency of each open account, by user and account.
CURRENCIES = {}
# The accepted content of each message id, by user, account and id.
CONTENTS = {}
# The paths of known partners.
PARTNERS = set()
# The partner that sends the requests.
TESTER = "bootstrap"
# A public key of Ed25519, since not all sequences of 32 bytes are valid.
PUBLIC_KEY = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs="
# The cursors of earlier pages, by listing.
CURSORS = {}
# The orders of transactions in each status.
ORDERS = {
    "posted": ["oldest_first", "newest_first"],
    "accepted": ["oldest_first"],
    "rejected": ["oldest_first", "by_decision"],
}
# The query parameters that select a listing.
SELECTING = [
    "status", "order", "from", "until", "type", "amount_min", "amount_max", "reference", "resolved", "phase",
]  # fmt: skip
# The strict document.
STRICT = json.loads((Path(__file__).parents[2] / "schemas/openapi/postonce-strict.json").read_text())
SCHEMAS = STRICT["components"]["schemas"]


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None:
        return
    # Requests without a key, or with a wrong one, are not changed.
    if str(getattr(case.meta.phase.data, "parameter", None)).lower() != "authorization":
        remove_signature_and_fix_digest(case)
    if not case.meta.generation.mode.is_positive:
        return
    follow_strict_schema(case)
    drop_other_order(case)
    if "cursor" in (case.query or {}):
        use_known_cursor(case)
    operation = case.operation.definition.raw.get("operationId")
    if operation in ("submit_deposit", "submit_withdrawal"):
        use_account_currency(case, "amount")
        limit_size(case)
        use_message_id_once(case)
    elif operation == "submit_batch":
        send_item(case)
    elif operation == "open_account":
        drop_conditions(case)
    elif operation == "change_account":
        drop_conditions(case)
        use_account_currency(case, "overdraft_limit")
    elif operation == "change_gate":
        drop_conditions(case)
        use_later_time(case)
    elif operation == "add_partner_key":
        use_later_time(case)
    elif operation == "find_transactions":
        name_one_transaction(case)
    elif operation == "put_partner":
        match_any_revision(case)
        keep_tester_permissions(case)
    elif operation == "add_partner_signature_key":
        use_valid_key(case)
    fix_digest(case)


@schemathesis.hook
def after_call(context, case, response):
    # An answer without a body, such as 304, has none.
    media_type = response.headers.get("content-type", [""])[0]
    if response.status_code not in (200, 201, 202):
        return
    if "x-ndjson" in media_type:
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


def follow_strict_schema(case):
    """Takes members of the example until the strict schema accepts a body by the plain document."""
    by_plain_document = "UnknownMember" not in case.operation.schema.raw_schema["components"]["schemas"]
    strict = STRICT["paths"][case.operation.path][case.operation.method.lower()]
    reference = strict.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if not by_plain_document or reference is None or not isinstance(case.body, dict):
        return
    example = SCHEMAS[reference["$ref"].rsplit("/", 1)[1]]["example"]
    for name, value in example.items():
        if strict_validator(reference["$ref"]).is_valid(case.body):
            return
        case.body[name] = value
    if not strict_validator(reference["$ref"]).is_valid(case.body):
        case.body = dict(example)


@cache
def strict_validator(reference):
    schema = {"$ref": reference, "components": STRICT["components"]}
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def account(case):
    return tuple(str(case.path_parameters[name]).lower() for name in ("user_id", "account_id"))


def content(case):
    return json.dumps([case.operation.path, case.body], sort_keys=True, default=str)


def listing(case):
    query = case.query or {}
    return case.formatted_path.lower(), *(query.get(name) for name in SELECTING)


def drop_other_order(case):
    """Removes an order that the transactions with the status do not have."""
    query = case.query or {}
    if "order" in query and query["order"] not in ORDERS.get(query.get("status", "posted"), []):
        del query["order"]


def name_one_transaction(case):
    """Looks for a valid order number, or for a message on an account."""
    query = case.query or {}
    if "order_number" in query:
        case.query = {"order_number": "10000422"}
    else:
        names = ("message_id", "user_id", "account_id")
        case.query = {name: query.get(name) or str(uuid.uuid4()) for name in names}


def use_known_cursor(case):
    known = CURSORS.get(listing(case))
    if not known:
        del case.query["cursor"]
    elif case.query["cursor"] not in known:
        case.query["cursor"] = known[-1]


def use_account_currency(case, money):
    """Sets the currency of the account, and an amount with at most its decimals."""
    currency = CURRENCIES.get(account(case))
    if currency is None or not isinstance(case.body, dict):
        return
    names = NAMES[format_of(case)]
    put(case.body, names["currency"], lambda _: currency)
    pattern = pattern_of(currency, money)

    def fitting(given):
        if not isinstance(given, dict):
            return given if not isinstance(given, str) or re.search(pattern, given) else "1"
        decimals = int(given["Decimals"])
        digits = given["Digits"].rjust(decimals + 1, "0")
        number = f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits
        return given if re.search(pattern, number) else given | {"Digits": "1", "Decimals": "0"}

    put(case.body, names[money], fitting)


def format_of(case):
    media_type = case.media_type or "application/json"
    return "wwi" if "wwi" in media_type else "xml" if "xml" in media_type else "json"


def put(body, path, change):
    """Changes the value at a path, if there is one."""
    *outer, last = path
    for name in outer:
        body = body.get(name, {})
    if isinstance(body, dict) and last in body:
        body[last] = change(body[last])


def limit_size(case):
    """Removes members that exceed the maximum size."""
    if not isinstance(case.body, dict):
        return
    if format_of(case) == "xml":
        # A schema of JSON cannot describe the names of elements.
        case.body = {name: value for name, value in case.body.items() if name in XML_ELEMENTS}
    if format_of(case) in PAIRS:
        remove_repeated_names(case.body, *PAIRS[format_of(case)])
        return
    known = SCHEMAS["TransactionRequest"]["properties"]
    unknown = {name: value for name, value in case.body.items() if name not in known}
    parts = [*unknown, "metadata"] if size(unknown) > BYTES_MAX else ["metadata"]
    for name in parts:
        if name != "metadata" or size(case.body.get(name)) > BYTES_MAX:
            case.body.pop(name, None)


def remove_repeated_names(body, pairs, name):
    """Removes repeated names, which a schema cannot exclude in a list. A null name is written as "null"."""
    named = {str(pair[name] if pair[name] is not None else "null"): pair for pair in body.get(pairs) or []}
    if pairs in body:
        body[pairs] = list(named.values()) if size(body[pairs]) <= BYTES_MAX else []


def size(value):
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def pattern_of(currency, money):
    request = SCHEMAS["TransactionRequest" if money == "amount" else "OpenAccountRequest"]
    groups = (group["properties"] for group in request["oneOf"])
    return next(group[money]["pattern"] for group in groups if currency in group["currency"]["enum"])


@schemathesis.serializer("application/x-ndjson", "text/csv", "application/octet-stream")
def lines(context, value):
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "replace")


@schemathesis.serializer("application/xml")
def xml(context, value):
    """A document of a batch is a text already."""
    return value.encode("utf-8", "replace") if isinstance(value, str) else serialize_xml(context.case, value)["data"]


def send_item(case):
    """Sends one item, the same for each id of a batch: a schema describes a text, and not its lines."""
    batch = str(case.headers["Idempotency-Key"]).strip('"').lower()
    ids = {name: str(uuid.uuid5(uuid.UUID(batch), name)) for name in ("user_id", "account_id", "message_id")}
    item = ids | {"type": "deposit", "amount": "1", "currency": "EUR"}
    if "csv" in case.media_type:
        case.body = "\n".join(",".join(part) for part in (item.keys(), item.values()))
    elif "xml" in case.media_type:
        names = {name: name.title().replace("_", "") for name in item}
        elements = "".join(f"<{names[name]}>{text}</{names[name]}>" for name, text in item.items())
        request = f"<TransactionRequest>{elements}</TransactionRequest>"
        case.body = f'<BatchRequest xmlns="urn:postonce:xml:1">{request}</BatchRequest>'
    else:
        case.body = json.dumps(item)
    for name in ("Batch-Count", "Batch-Sums"):
        case.headers.pop(name, None)


def use_message_id_once(case):
    """Uses another id for other content."""
    message = str(case.headers["Idempotency-Key"]).strip('"').lower()
    known = CONTENTS.get((*account(case), message))
    if known not in (None, content(case)):
        case.headers["Idempotency-Key"] = str(uuid.uuid5(uuid.UUID(message), content(case)))


def use_later_time(case):
    """Moves the release of the gate, or the expiry of a key, to the future."""
    soon = datetime.now(timezone.utc) + timedelta(minutes=10)
    for member in ("release_at", "expires_at"):
        at = case.body.get(member) if isinstance(case.body, dict) else None
        if isinstance(at, str) and datetime.fromisoformat(at.upper()) < soon:
            case.body[member] = "2099-12-31T23:59:59Z"


def match_any_revision(case):
    """Accepts any revision of a known partner, so that concurrent changes are not refused."""
    if case.headers and case.headers.pop("If-Match", None) and case.formatted_path in PARTNERS:
        case.headers["If-Match"] = "*"


def drop_conditions(case):
    """Changes accounts and the gate without a condition: which version they have is not known here."""
    for name in ("If-Match", "If-None-Match"):
        if case.headers:
            case.headers.pop(name, None)


def keep_tester_permissions(case):
    """Keeps the reach and the rate of the tester, since a restricted tester finds nothing more."""
    if case.path_parameters["partner_id"] == TESTER and isinstance(case.body, dict):
        case.body["reach"] = {"everything": True}
        case.body["rate"] = None


def use_valid_key(case):
    if not isinstance(case.body, dict) or "material" not in case.body:
        return
    secret = hashlib.sha256(case.body["material"].encode("utf-8", "replace")).digest()
    is_public = case.body.get("algorithm") == "ed25519"
    case.body["material"] = PUBLIC_KEY if is_public else base64.b64encode(secret).decode()


def remove_signature_and_fix_digest(case):
    """A signature is valid for one request of one partner, and a digest for one body. Random ones would
    only hide other errors of a request."""
    for name in ("Signature", "Signature-Input"):
        (case.headers or {}).pop(name, None)
    fix_digest(case)


def fix_digest(case):
    if "Content-Digest" in (case.headers or {}):
        body = requests.Request(**case.as_transport_kwargs()).prepare().body or b""
        digest = hashlib.sha256(body.encode() if isinstance(body, str) else body).digest()
        case.headers["Content-Digest"] = f"sha-256=:{base64.b64encode(digest).decode()}:"
