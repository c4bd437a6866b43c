"""Prints what Bicep files declare as JSON, one file a line, for the tests.

Reads the syntax only: it knows neither types nor functions. An expression that is not a value is a text, as it stands in
the file; so is a text with `${…}`. Exit code 1: standard error tells where a file is not Bicep.
"""

import json
import sys
from pathlib import Path

import tree_sitter
import tree_sitter_bicep

LANGUAGE = tree_sitter.Language(tree_sitter_bicep.language())
KINDS = {
    "parameter_declaration": "params",
    "variable_declaration": "variables",
    "resource_declaration": "resources",
    "module_declaration": "modules",
    "output_declaration": "outputs",
}


def text_of(node):
    return node.text.decode()


def named(node):
    """The parts of a node, without punctuation and comments."""
    return [child for child in node.named_children if child.type != "comment"]


def value_of(node):
    """A value as JSON; `for`, `if`, calls and choices as an object with a member of that name."""
    parts = named(node)
    match node.type:
        case "object":
            return dict(member_of(part) for part in parts)
        case "array":
            return [value_of(part) for part in parts]
        case "string":
            return text_of(node)[1:-1]
        case "number" | "boolean" | "null":
            return json.loads(text_of(node))
        case "for_statement":
            return {"for": text_of(parts[-2]), "body": value_of(parts[-1])}
        case "if_statement":
            return {"if": text_of(parts[0]), "body": value_of(parts[-1])}
        case "call_expression":
            arguments = [value_of(argument) for argument in named(parts[-1])]
            return {"call": text_of(parts[0]), "arguments": arguments}
        case "ternary_expression":
            condition, chosen, otherwise = parts
            return {"if": text_of(condition), "body": value_of(chosen), "else": value_of(otherwise)}
    return {"expression": text_of(node)}


def member_of(node):
    name, *values = named(node)
    key = text_of(name)[1:-1] if name.type == "string" else text_of(name)
    return key, value_of(values[-1])


def names_in(node):
    """The names that the expressions in a node refer to."""
    parts = named(node)
    if node.type == "identifier":
        yield text_of(node)
    elif node.type == "object_property" and parts[0].type == "identifier":
        parts = parts[1:]
    elif node.type in KINDS:
        parts = parts[1:]
    for part in parts:
        yield from names_in(part)


def loop_names_in(node):
    """The names that the loops in a node give to their items."""
    parts = named(node)
    if node.type in ("loop_variable", "loop_enumerator"):
        yield text_of(node)
    elif node.type == "for_statement" and parts[0].type == "identifier":
        yield text_of(parts[0])
    for part in parts:
        yield from loop_names_in(part)


def declared(node, decorators):
    """The name of a declaration, and its parts."""
    parts = named(node)
    name, rest = text_of(parts[0]), parts[1:]
    found = {"decorators": {call["call"]: call["arguments"] for call in decorators}}
    if node.type != "variable_declaration":
        subject = rest.pop(0)
        found["type"] = value_of(subject) if subject.type == "string" else text_of(subject)
    found["existing"] = any(child.type == "existing" for child in node.children)
    if rest:
        found["value"] = value_of(rest[-1])
    return name, found


def declarations(root):
    """What a file declares, by kind and name, and the names that it refers to, also those of its loops."""
    found = {kind: {} for kind in KINDS.values()}
    decorators = []
    for node in named(root):
        if node.type == "decorators":
            calls = (part for decorator in named(node) for part in named(decorator))
            decorators = [value_of(call) for call in calls]
        elif node.type in KINDS:
            name, declaration = declared(node, decorators)
            found[KINDS[node.type]][name] = declaration
            decorators = []
    references, loops = sorted(set(names_in(root))), sorted(set(loop_names_in(root)))
    return found | {"references": references, "loops": loops}


def errors(node):
    """The places at which a file is not Bicep."""
    if node.type == "ERROR" or node.is_missing:
        yield f"line {node.start_point.row + 1}: {text_of(node)[:60]!r}"
    elif node.has_error:
        for child in node.children:
            yield from errors(child)


def main(paths):
    is_valid = True
    for path in map(Path, paths):
        root = tree_sitter.Parser(LANGUAGE).parse(path.read_bytes()).root_node
        for error in errors(root):
            is_valid = False
            print(f"{path.name}, {error}", file=sys.stderr)
        print(json.dumps({"file": path.name} | declarations(root)))
    return 0 if is_valid else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
