"""Validates XML documents by XML schemas, for the tests.

Started with the folder of the schemas. Reads one request a line from standard input, and answers each
with one line on standard output; both are JSON:

    {"schema": "xsd/user-account-transaction.xsd", "document": "<base64>"}
    {"errors": []}          the document is valid
    {"errors": ["line 3: …"]}
    {"fault": "…"}          the document cannot be validated, for example because the schema is missing

Nothing is loaded from the network, nor from outside of that folder. Ends with its input.
"""

import base64
import json
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lxml import etree

ERRORS_MAX = 20


class Fault(Exception):
    """The document cannot be validated; the text is the reason."""


class InsideOnly(etree.Resolver):
    """Refuses to load files from outside of a folder."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def resolve(self, url, public_id, context):
        parts = urlsplit(url)
        path = Path(unquote(parts.path)).resolve()
        if parts.scheme not in ("", "file") or parts.netloc or not path.is_relative_to(self.folder):
            raise Fault(f"{url} is not in {self.folder}")
        return self.resolve_filename(str(path), context)


class Validator:
    """Schemas of one folder, each loaded once."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        self.schemas = {}

    def schema(self, name):
        if name not in self.schemas:
            path = (self.folder / name).resolve()
            if not path.is_relative_to(self.folder) or not path.is_file():
                raise Fault(f"there is no schema {name} in {self.folder}")
            parser = etree.XMLParser(no_network=True, load_dtd=False, resolve_entities=False)
            parser.resolvers.add(InsideOnly(self.folder))
            try:
                self.schemas[name] = etree.XMLSchema(etree.parse(str(path), parser))
            except (etree.XMLSchemaParseError, etree.XMLSyntaxError) as error:
                raise Fault(f"{name} is not a schema: {error}") from error
        return self.schemas[name]

    def errors(self, name, document):
        schema = self.schema(name)
        parser = etree.XMLParser(no_network=True, load_dtd=False, resolve_entities=False)
        try:
            root = etree.fromstring(document, parser)
        except etree.XMLSyntaxError as error:
            return [f"not well-formed: {error}"]
        if root.getroottree().docinfo.doctype:
            return ["has a document type declaration"]
        if schema.validate(root):
            return []
        return [f"line {entry.line}: {entry.message}" for entry in schema.error_log][:ERRORS_MAX]


def answer(validator, line):
    try:
        request = json.loads(line)
        return {"errors": validator.errors(request["schema"], base64.b64decode(request["document"]))}
    except Fault as fault:
        return {"fault": str(fault)}


def main():
    validator = Validator(Path(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(answer(validator, line)), flush=True)


if __name__ == "__main__":
    main()
