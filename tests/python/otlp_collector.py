"""A collector of OpenTelemetry that prints the spans that it receives.

    python otlp_collector.py http|redirecting PORT [CERTIFICATE KEY]

Listens on loopback, over TLS if files with a certificate and its key are given; with port 0 the system chooses one.
Prints "port N", and then each span as a line of JSON. "redirecting" answers spans with a redirect to another page.
"""

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

PATH = "/v1/traces"


def values(attributes):
    """Returns attributes as a dictionary."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def show(request, authorization):
    """Prints the spans of a request, with its authorization."""
    for of_resource in request.resource_spans:
        resource = values(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                line = {
                    "authorization": authorization,
                    "resource": resource,
                    "scope": of_scope.scope.name,
                    "name": span.name,
                    "kind": Span.SpanKind.Name(span.kind),
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "begun_ns": span.start_time_unix_nano,
                    "ended_ns": span.end_time_unix_nano,
                    "attributes": values(span.attributes),
                    "links": [link.trace_id.hex() + "-" + link.span_id.hex() for link in span.links],
                    "status": Status.StatusCode.Name(span.status.code),
                }
                print(json.dumps(line), flush=True)


class Collecting(BaseHTTPRequestHandler):
    """OTLP over HTTP, with binary protobuf."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        is_valid = self.path == PATH and self.headers["content-type"] == "application/x-protobuf"
        if is_valid:
            request = service.ExportTraceServiceRequest.FromString(body)
            show(request, self.headers.get("authorization", ""))
        answer = service.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if is_valid else 400)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Only spans are printed."""


class Redirecting(Collecting):
    """A gateway in front of a collector that asks people to log in."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(302)
        self.send_header("location", "/login")
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


def main():
    kind, port, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    server = ThreadingHTTPServer(("127.0.0.1", port), Collecting if kind == "http" else Redirecting)
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
