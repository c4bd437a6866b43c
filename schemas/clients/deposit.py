#!/usr/bin/env python3
"""Deposits money at a Postonce bank, exactly once, whatever the network does. Needs Python 3.11 and nothing else.

    POSTONCE_API_KEY=po_... python3 deposit.py USER ACCOUNT AMOUNT CURRENCY REFERENCE [MESSAGE_ID]

The key needs the scopes deposit and read. Prints one line, and exits with
    0  posted    the money is on the account
    3  rejected  a final answer, for example because the account is closed; a new payment needs a new id
    4  refused   the request is wrong, and this run posted nothing; correct it, and use the same id
    5  unknown   there is no final answer yet, and the money may have moved; run again with the same MESSAGE_ID
    2  wrong usage, before anything was sent. Any other code, such as that of a crash, means unknown.
"""

import http.client
import json
import os
import random
import re
import sys
import time
import uuid
from typing import NoReturn
from urllib.parse import urlsplit

DELAY_MIN_S, DELAY_MAX_S = 0.2, 10.0
POSTED, REJECTED, REFUSED, UNKNOWN, USAGE = 0, 3, 4, 5, 2
HOST = r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\]"
PORT = r"[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
HTTP_URL = rf"https?://({HOST})(:({PORT}))?(/[A-Za-z0-9._~%/-]*)?"


def usage(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(USAGE)


def setting(name: str, default: str, allowed: str, rule: str) -> str:
    """A variable without line ends after it. Its value is never shown, because it may be a secret."""
    value = os.environ.get(name, default).rstrip("\r\n")
    return value if re.fullmatch(allowed, value) else usage(f"{name} must be {rule}")


KEY = setting("POSTONCE_API_KEY", "", "[!-~]+", "set to visible ASCII characters, without spaces")
BANK = urlsplit(setting("POSTONCE_URL", "http://127.0.0.1:8080", HTTP_URL, "an address such as https://bank.example"))
# Longer than the wait in the header Prefer.
ATTEMPT_S = int(setting("POSTONCE_ATTEMPT_S", "15", "[1-9][0-9]{0,5}", "a number of seconds"))
GIVE_UP_S = int(setting("POSTONCE_GIVE_UP_S", "300", "[0-9]{1,6}", "a number of seconds"))


def main() -> int:
    if len(sys.argv) not in (6, 7):
        usage(__doc__)
    user, account, amount, currency, reference, *given = sys.argv[1:]
    if not all(re.fullmatch("[0-9A-Fa-f-]{32,36}", an_id) for an_id in (user, account, *given)):
        usage("USER, ACCOUNT and MESSAGE_ID must be UUIDs")
    # Made once, and the same for every attempt. Store it with your payment BEFORE the first attempt: if this program
    # dies, only the same id can tell whether the money moved. A new id would be a second payment.
    message_id = given[0] if given else str(uuid.uuid4())
    print(f"message id {message_id}", file=sys.stderr)
    body = json.dumps({"amount": amount, "currency": currency, "reference": reference}).encode()
    outcome, line = deposit(f"/v1/users/{user}/accounts/{account}", message_id, body)
    print(printable(line))
    if outcome == UNKNOWN:
        print(f"The money may have moved. Run again later with the message id {message_id}.", file=sys.stderr)
    return outcome


def deposit(account: str, message_id: str, body: bytes) -> tuple[int, str]:
    """Sends the same request until the answer is final, or the time is over."""
    method, path = "POST", f"{account}/deposits"
    give_up_at = time.monotonic() + GIVE_UP_S
    delay_max, may_be_posted = DELAY_MIN_S, False
    while True:
        retry_after, limit_s = 0, max(1, min(ATTEMPT_S, give_up_at - time.monotonic()))
        try:
            status, retry_after, answer = send(method, path, message_id, body, limit_s)
            last = f"{status} {answer.get('code') or answer.get('status') or '-'}"
        except (OSError, http.client.HTTPException) as error:
            print(f"no answer: {error!r}", file=sys.stderr)
            status, answer, last = 0, {}, "no answer"
        if status in (200, 202):
            match answer.get("status"):
                case "posted":
                    return POSTED, f"posted {message_id} {answer['order_number']} {answer['balance_after']}"
                case "rejected":
                    return REJECTED, f"rejected {message_id} {answer['reason']}"
                case "accepted":  # It is queued. From now on it is enough to read it.
                    method, path = "GET", f"{account}/transactions/{message_id}"
        elif 300 <= status < 500 and status not in (408, 429):
            if may_be_posted:  # This attempt did nothing, but an earlier one may have.
                return UNKNOWN, f"unknown {message_id} {last}"
            print(printable(json.dumps(answer, ensure_ascii=False)), file=sys.stderr)
            return REFUSED, f"refused {message_id} {last}: {answer.get('detail') or '-'}"
        may_be_posted |= status != 429  # Such a request was not processed. Any other may have been.
        delay = max(retry_after, random.uniform(delay_max / 2, delay_max))
        delay_max = min(delay_max * 2, DELAY_MAX_S)
        if time.monotonic() + delay >= give_up_at:
            return UNKNOWN, f"unknown {message_id} {last}"
        print(f"{last}; the next attempt is in {delay:.1f} s", file=sys.stderr)
        time.sleep(delay)


def printable(text: str) -> str:
    """Text of a server, without what a terminal would obey."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def send(method: str, path: str, message_id: str, body: bytes, limit_s: float) -> tuple[int, int, dict]:
    """Returns status, Retry-After in seconds, and the body. Raises an exception if there is no complete answer."""
    connect = http.client.HTTPSConnection if BANK.scheme == "https" else http.client.HTTPConnection
    connection = connect(BANK.hostname, BANK.port, timeout=limit_s)
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/json"}
    if method == "POST":
        headers |= {"Content-Type": "application/json", "Idempotency-Key": message_id, "Prefer": "wait=5"}
    try:
        connection.request(method, BANK.path.rstrip("/") + path, body if method == "POST" else None, headers)
        response = connection.getresponse()
        text, retry_after = response.read(), response.headers.get("Retry-After", "")
    finally:
        connection.close()
    try:
        answer = json.loads(text)
    except ValueError:  # Not from the bank, but for example from a gateway in front of it.
        answer = {}
    seconds = int(retry_after) if retry_after.isdecimal() else 0
    return response.status, seconds, answer if isinstance(answer, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
