"""Attacks a queue and the payloads of a bank with Microsoft's SDK.

    python forge.py COMMAND

Reads a request as JSON from standard input, and writes the result as JSON to standard output. Commands:
    add                sends texts and envelopes with a SAS that may only add
    intercept          receives messages, changes them and sends them on, with a SAS that may process and add
    store              stores bytes as payloads under any names, with a SAS that may only create
    delete_queue       deletes the queue with the account key
    claim              stores envelopes as payloads with a SAS that may only create, and sends claims on them
    rewrite_payloads   changes payloads that the bank stored, with a SAS that may list, read and write

The account key in the connection string is used to make these shared access signatures (SAS), and to delete the queue.
"""

import base64
import gzip
import json
import sys
import uuid
from datetime import datetime, timedelta, timezone

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobSasPermissions, ContainerClient, ContainerSasPermissions
from azure.storage.blob import generate_container_sas
from azure.storage.queue import (
    QueueClient, QueueSasPermissions, TextBase64EncodePolicy, generate_queue_sas)

# Visibility timeout of received messages, in seconds.
VISIBILITY_TIMEOUT_S = 60
# Maximum number of messages of one receive.
RECEIVE_MAX = 32


class Account:
    """A storage account, and clients for it that have a SAS with few permissions."""

    def __init__(self, request):
        parts = (part.split("=", 1) for part in request["connection"].split(";") if part)
        self.settings = dict(parts)
        self.queue_name = request["queue"]
        self.container_name = request["container"]

    def _signature(self, generate, name, permission):
        expiry = datetime.now(timezone.utc) + timedelta(hours=1)
        account, key = self.settings["AccountName"], self.settings["AccountKey"]
        return generate(account, name, key, permission=permission, expiry=expiry)

    def queue(self, policy=None, **permissions):
        permission = QueueSasPermissions(**permissions)
        sas = self._signature(generate_queue_sas, self.queue_name, permission)
        address = f"{self.settings['QueueEndpoint'].rstrip('/')}/{self.queue_name}"
        return QueueClient.from_queue_url(address, credential=sas, message_encode_policy=policy)

    def owned_queue(self):
        address = f"{self.settings['QueueEndpoint'].rstrip('/')}/{self.queue_name}"
        return QueueClient.from_queue_url(address, credential=self.settings["AccountKey"])

    def container(self, permission):
        sas = self._signature(generate_container_sas, self.container_name, permission)
        address = f"{self.settings['BlobEndpoint'].rstrip('/')}/{self.container_name}"
        return ContainerClient.from_container_url(address, credential=sas)


def encoded(envelope):
    """The text of a queue message with this envelope."""
    return base64.b64encode(json.dumps(envelope).encode()).decode()


def decoded(text):
    return json.loads(base64.b64decode(text))


def compressed(envelope):
    return gzip.compress(json.dumps(envelope).encode())


def store_payload(account, payload):
    """Stores bytes as a payload. Returns the envelope that claims it."""
    name = f"work-{uuid.uuid4().hex}"
    account.container(BlobSasPermissions(create=True)).upload_blob(name, payload)
    return {"v": 2, "payload": name}


def add(account, request):
    queue = account.queue(add=True)
    for text in request.get("texts", []):
        queue.send_message(text)
    for envelope in request.get("envelopes", []):
        queue.send_message(encoded(envelope))
    for text in request.get("texts_in_base64", []):
        account.queue(add=True, policy=TextBase64EncodePolicy()).send_message(text)
    # The refusal shows that the SAS permits only adding.
    try:
        queue.peek_messages()
        may_read = True
    except HttpResponseError as refused:
        may_read = refused.status_code != 403
    return {"may_read": may_read}


def store(account, request):
    container = account.container(BlobSasPermissions(create=True))
    for name in request["names"]:
        container.upload_blob(name, b"written by an outsider")
    return {}


def claim(account, request):
    queue = account.queue(add=True)
    payloads = [compressed(envelope) for envelope in request.get("envelopes", [])]
    payloads += [base64.b64decode(payload) for payload in request.get("payloads", [])]
    for payload in payloads:
        queue.send_message(encoded(store_payload(account, payload)))
    return {}


def changed(envelope, change):
    return {**envelope, "items": [{**item, **change} for item in envelope["items"]]}


def in_front(account, queue, message, change):
    """Sends a changed copy, and then the original."""
    queue.delete_message(message)
    queue.send_message(encoded(changed(decoded(message.content), change)))
    queue.send_message(message.content)


def in_front_as_claim(account, queue, message, change):
    """Sends a claim on a payload with a changed copy, and then the original."""
    queue.delete_message(message)
    payload = compressed(changed(decoded(message.content), change))
    queue.send_message(encoded(store_payload(account, payload)))
    queue.send_message(message.content)


def in_place(account, queue, message, change):
    """Changes the message."""
    text = encoded(changed(decoded(message.content), change))
    queue.update_message(message, content=text, visibility_timeout=0)


def as_claim(account, queue, message, change):
    """Changes the message to a claim on a payload with a changed copy."""
    payload = compressed(changed(decoded(message.content), change))
    text = encoded(store_payload(account, payload))
    queue.update_message(message, content=text, visibility_timeout=0)


def untouched(account, queue, message, change):
    """Releases the message unchanged."""
    queue.update_message(message, content=message.content, visibility_timeout=0)


def deleted(account, queue, message, change):
    """Deletes the message."""
    queue.delete_message(message)


ALL_WAYS = (in_front, in_front_as_claim, in_place, as_claim, untouched, deleted)
WAYS = {way.__name__: way for way in ALL_WAYS}


def intercept(account, request):
    """Carries out the interception of each message, which has one item. Returns the items."""
    queue = account.queue(add=True, process=True, update=True)
    interceptions = {one["message_id"]: one for one in request["interceptions"]}
    items = []
    # All messages are received first: otherwise the changed ones would be received again.
    received = list(queue.receive_messages(
        messages_per_page=RECEIVE_MAX, visibility_timeout=VISIBILITY_TIMEOUT_S))
    for message in received:
        [item] = decoded(message.content)["items"]
        items.append(item)
        interception = interceptions[item["m"]]
        WAYS[interception["way"]](account, queue, message, interception["change"])
    return {"items": items}


def rewrite_payloads(account, request):
    """Changes all items of all payloads. Returns the number of items."""
    permission = ContainerSasPermissions(list=True, read=True, write=True)
    container = account.container(permission)
    count = 0
    for name in container.list_blob_names(name_starts_with="work-"):
        envelope = json.loads(gzip.decompress(container.download_blob(name).readall()))
        count += len(envelope["items"])
        payload = compressed(changed(envelope, request["change"]))
        container.upload_blob(name, payload, overwrite=True)
    return {"items": count}


def delete_queue(account, _request):
    account.owned_queue().delete_queue()
    return {}


COMMANDS = {
    command.__name__: command for command in (add, intercept, store, claim, rewrite_payloads, delete_queue)
}


def main():
    [command] = sys.argv[1:]
    request = json.load(sys.stdin)
    print(json.dumps(COMMANDS[command](Account(request), request)))


main()
