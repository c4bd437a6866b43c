"""Prints the documents of the YAML on standard input as JSON, one a line, for the tests.

With versions of Kubernetes as arguments, such as 1.32, also checks each document against the schema of its kind in
these versions, without unknown members. Custom kinds have no schema here and are left out. Exit code 1: standard error
tells which documents are invalid.
"""

import json
import sys

import kubernetes_validate
import yaml


def is_custom(document):
    """Whether the kind is not one of Kubernetes itself: its group has a domain of its own."""
    group, _, _ = document["apiVersion"].rpartition("/")
    return "." in group and not group.endswith(".k8s.io")


def violation(document, version):
    """Why a document is invalid; None if it is valid."""
    if is_custom(document):
        return None
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        place = ".".join(str(part) for part in error.path)
        return f"{place}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return error.message
    return None


def main(versions):
    documents = [document for document in yaml.safe_load_all(sys.stdin) if document is not None]
    is_valid = True
    for document in documents:
        for version in versions:
            found = violation(document, version)
            if found:
                is_valid = False
                name = f"{document['kind']} {document['metadata']['name']}"
                print(f"{name} is invalid in Kubernetes {version}: {found}", file=sys.stderr)
        print(json.dumps(document))
    return 0 if is_valid else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
