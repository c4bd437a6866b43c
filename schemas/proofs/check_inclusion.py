#!/usr/bin/env python3
"""Checks the proof that an anchor of the bank covers a decision about one transaction.

    check_inclusion.py PROOF.json PUBLIC_KEY

PROOF.json is the output of `postonce-web anchors prove`, PUBLIC_KEY the base64 of the bank's public key. Get the key from
somewhere else than the proof. Needs Python 3.9 and the package `cryptography`. Prints the decision that is proven: compare it
with the answer that you received. Exit code 1 means that the proof is not valid.

What is proven: the bank signed a state of all accounts that contains exactly this decision. Keep the anchor in the proof: if
the bank later shows a history without the decision, the two contradict each other.
"""

import base64
import hashlib
import json
import struct
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


BEFORE_METADATA = (
    ("sequence", "counter"),
    ("partner", "text"),
    ("message_id", "bytes"),
    ("type", "text"),
    ("currency", "text"),
    ("amount_minor_units", "number"),
    ("has_reference", "number"),
    ("reference", "text"),
    ("metadata_count", "number"),
)
METADATA = (("metadata_name", "text"), ("metadata_value", "text"))
AFTER_METADATA = (
    ("unknown_members", "text"),
    ("order_number_counter", "counter"),
    ("balance_after_minor_units", "number"),
    ("accepted_at_ms", "number"),
    ("posted_at_ms", "number"),
)
REJECTION = (
    ("partner", "text"),
    ("message_id", "bytes"),
    ("fingerprint", "text"),
    ("accepted_at_ms", "number"),
    ("reason", "text"),
    ("rejected_at_ms", "number"),
)


class Invalid(Exception):
    """The proof is not valid."""


def sized(data):
    """Bytes after their number, as the bank hashes texts and ids."""
    return struct.pack(">Q", len(data)) + data


def encoded(field):
    """A field of a decision, as it is hashed."""
    _, kind, value = parts(field)
    if kind == "text":
        return sized(value.encode())
    if kind == "bytes":
        return sized(bytes.fromhex(value))
    if kind == "counter":
        return sized(struct.pack(">Q", int(value)))
    return struct.pack(">q", int(value))


def parts(field):
    """The name, the kind and the value of a field."""
    ((kind, value),) = ((key, value) for key, value in field.items() if key != "name")
    return field["name"], kind, value


def expected(decision):
    """The names and kinds of the fields: only their values and their order are hashed."""
    if decision["rule"] == "postonce rejection 1":
        return REJECTION
    require(decision["rule"] == "postonce posting 1", "the kind of decision is not known")
    count = int(parts(decision["fields"][len(BEFORE_METADATA) - 1])[2])
    return BEFORE_METADATA + METADATA * count + AFTER_METADATA


def digest(rule, *parts):
    return hashlib.sha256(sized(rule.encode()) + b"".join(parts)).digest()


def node(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def uuid(text):
    return bytes.fromhex(text.replace("-", ""))


def require(holds, why):
    if not holds:
        raise Invalid(why)


def check_decision(proof):
    """1. The decision is in the first page."""
    decision = proof["decision"]
    names = tuple(parts(field)[:2] for field in decision["fields"])
    require(names == expected(decision), "the decision has other fields")
    shown = digest(decision["rule"], *map(encoded, decision["fields"]))
    digests = [bytes.fromhex(text) for text in proof["digests"]]
    require(0 <= proof["position"] < len(digests), "the decision has no place in its page")
    require(digests[proof["position"]] == shown, "the decision differs from the one in its page")
    page = digest("postonce decisions 1", *map(sized, digests))
    require(proof["pages"][0]["decisions"] == page.hex(), "the decisions differ from those of the page")


def check_pages(proof):
    """2. The pages are a chain. Returns the version and the hash of the last one."""
    head = None
    for page in proof["pages"]:
        require(head is None or page["previous_hash"] == head[1].hex(), "the pages are not a chain")
        require(head is None or page["version"] == head[0] + 1, "a page is missing")
        covered = (
            uuid(proof["user_id"]),
            uuid(proof["account_id"]),
            struct.pack(">Q", page["first_sequence"]),
            bytes.fromhex(page["previous_hash"]),
            uuid(page["nonce"]),
            struct.pack(">Q", page["version"]),
            bytes.fromhex(page["decisions"]),
        )
        head = (page["version"], digest("postonce journal page 2", *map(sized, covered)))
    return head


def check_tree(proof, head, leaves):
    """3. The end of the journal is a leaf of the tree (RFC 9162, section 2.1.3.2)."""
    version, page_hash = head
    leaf = uuid(proof["user_id"]) + uuid(proof["account_id"]) + struct.pack(">Q", version) + page_hash
    root = hashlib.sha256(b"\x00" + leaf).digest()
    place, last = proof["leaf_index"], int(leaves["count"]) - 1
    require(0 <= place <= last, "the leaf has no place in the tree")
    for text in proof["path"]:
        require(last > 0, "the path is too long")
        sibling = bytes.fromhex(text)
        if place & 1 or place == last:
            root = node(sibling, root)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            root = node(root, sibling)
        place, last = place >> 1, last >> 1
    require(last == 0, "the path is too short")
    require(root.hex() == leaves["root"], "the journal is not covered by the anchor")


def check_signature(anchor, public_key):
    """4. The bank signed the anchor."""
    require(anchor["public_key"] == public_key, "the anchor was signed with another key")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
    signed = b"postonce anchor 1\n" + anchor["statement"].encode()
    try:
        key.verify(base64.b64decode(anchor["signature"], validate=True), signed)
    except InvalidSignature:
        raise Invalid("the signature of the anchor is not valid") from None


def check(proof, public_key):
    """Returns the statement of the anchor.

    Raises Invalid when the proof is not valid.
    """
    try:
        return checked(proof, public_key)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
        raise Invalid(f"the proof is malformed ({error})") from error


def checked(proof, public_key):
    require(proof["v"] == 1, "the version of the proof is not known")
    require(proof["pages"], "the proof has no page")
    check_decision(proof)
    statement = json.loads(proof["anchor"]["statement"])
    require(statement["v"] == 1, "the version of the anchor is not known")
    check_tree(proof, check_pages(proof), statement["leaves"])
    check_signature(proof["anchor"], public_key)
    return statement


def printable(text):
    """Text of the proof, without what a terminal would obey."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            proof = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(printable(f"not valid: the proof cannot be read ({error})"))
    try:
        statement = check(proof, sys.argv[2])
    except Invalid as why:
        sys.exit(printable(f"not valid: {why}"))
    print(printable(f"valid: covered by anchor {statement['sequence']} of {statement['made_at']}"))
    print(printable(f"account: {proof['user_id']}/{proof['account_id']}"))
    print(printable(f"decision: {proof['decision']['rule'].split()[1]}"))
    for field in proof["decision"]["fields"]:
        name, _, value = parts(field)
        print(printable(f"  {name}: {value}"))


if __name__ == "__main__":
    main()
