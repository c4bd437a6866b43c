"""A SOAP client as a partner would have it: zeep, generated from the WSDL.

    python soap_client.py WSDL_ADDRESS PORT API_KEY

One call per line of standard input, one answer per line of standard output, both JSON:
    {"operation": "ReliableInsertMoney", "arguments": {...}, "message_id": "urn:uuid:..." or null}
    {"returned": {...}, "message_id": "...", "relates_to": "...", "message": "<...>"}
    {"fault": {"code": ..., "reason": ..., "status": ..., "problem": {...}}, ...}
The WSDL requires WS-Addressing, so zeep creates a MessageID for each message. A given message id replaces
it, as a retry requires.
"""

import json
import sys

import requests
import zeep
from lxml import etree
from zeep import Plugin
from zeep.helpers import serialize_object
from zeep.plugins import HistoryPlugin

WSA = "http://www.w3.org/2005/08/addressing"
PROBLEM = "urn:ietf:rfc:7807"


class Transport(zeep.Transport):
    """Stores the HTTP status, which zeep does not return with a fault."""

    status = None

    def post(self, address, message, headers):
        response = super().post(address, message, headers)
        self.status = response.status_code
        return response


class Retry(Plugin):
    """Replaces the id of a message by the id of an earlier one."""

    message_id = None

    def egress(self, envelope, http_headers, operation, binding_options):
        if self.message_id is not None:
            envelope.find(f".//{{{WSA}}}MessageID").text = self.message_id
        return envelope, http_headers


def header(envelope, name):
    return envelope.findtext(f".//{{{WSA}}}{name}")


def problem_of(fault):
    detail = fault.detail if isinstance(fault.detail, etree._Element) else None
    found = None if detail is None else detail.find(f".//{{{PROBLEM}}}problem")
    if found is None:
        return None
    members = {child.tag.split("}")[1]: child.text for child in found if len(child) == 0}
    members["fields"] = [field.text for field in found.iter(f"{{{PROBLEM}}}field")]
    return members


def main():
    address, port, key = sys.argv[1:]
    session = requests.Session()
    # A process on the same machine is reached without the proxy of the environment.
    session.trust_env = False
    if key:
        session.headers["Authorization"] = f"Bearer {key}"
    history, retry = HistoryPlugin(), Retry()
    transport = Transport(session=session)
    client = zeep.Client(address, transport=transport, plugins=[retry, history])
    service = client.bind("UserAccountService", port)
    for line in sys.stdin:
        call = json.loads(line)
        retry.message_id = call["message_id"]
        answer = {}
        try:
            returned = service[call["operation"]](**call["arguments"])
            answer["returned"] = serialize_object(returned, dict)
        except zeep.exceptions.Fault as fault:
            code = fault.code if isinstance(fault.code, str) else str(fault.code)
            answer["fault"] = {
                "code": code,
                "reason": fault.message,
                "status": transport.status,
                "problem": problem_of(fault),
            }
        answer["message_id"] = header(history.last_sent["envelope"], "MessageID")
        received = history.last_received["envelope"]
        answer["relates_to"] = header(received, "RelatesTo")
        body = next(child for child in received if child.tag.endswith("}Body"))
        answer["message"] = etree.tostring(body[0]).decode()
        print(json.dumps(answer, default=str), flush=True)


main()
