#!/usr/bin/env python3
"""Writes advisories.toml, a copy of the facts in the RustSec advisory database that a check of versions needs.

    update.py CHECKOUT COMMIT DATE

CHECKOUT is the directory of a checkout of https://github.com/rustsec/advisory-db, COMMIT what is checked out, and DATE the day
of that commit (YYYY-MM-DD). The same arguments give the same file. To refresh the copy:

    git clone --depth 1 https://github.com/rustsec/advisory-db CHECKOUT
    tests/advisories/update.py CHECKOUT $(git -C CHECKOUT log -1 --format='%H %cs')

Then run the test `advisories`, and update the crates that it names. Needs Python 3.11 and nothing else.

Copied are ids, names of crates, kinds and requirements on versions: no titles and no text. Withdrawn advisories are left out, and
those about Rust's own libraries and tools, which no lock file names.
"""

import datetime
import json
import pathlib
import re
import sys
import tomllib

HEADER = """\
# A copy of the facts in the RustSec advisory database that the test `advisories` needs, written by update.py: see there how to
# refresh it. A version of a crate is affected unless it meets one of the requirements `patched` or `unaffected`.
"""
KINDS = ("vulnerability", "unmaintained", "unsound", "notice")
DEFAULT_LICENSE = "CC0-1.0"
# The list has no patterns such as 1.*, and an unknown form must be seen here and not be a version that is never affected.
COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~|)\s*(\d+(?:\.\d+){0,2}(?:-[0-9A-Za-z.-]+)?)")


def requirement(text):
    """A requirement in one spelling: comparators with ", " between them, and a space after an order."""
    comparators = []
    for part in text.split(","):
        found = COMPARATOR.fullmatch(part.strip())
        if not found:
            raise ValueError(f"unknown form of a requirement: {text!r}")
        operator, version = found.groups()
        comparators.append(f"{operator} {version}" if operator in (">=", "<=", ">", "<") else operator + version)
    return ", ".join(comparators)


def entry(path):
    """The line of an advisory, with what it is sorted by; none if it is withdrawn."""
    front = re.match(r"\s*```toml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    if not front:
        raise ValueError("no front matter")
    parsed = tomllib.loads(front[1])
    advisory, versions = parsed["advisory"], parsed["versions"]
    if "withdrawn" in advisory:
        return None
    if advisory["id"] != path.stem or advisory["package"] != path.parent.name:
        raise ValueError("the path does not agree with the id and the crate")
    kind = advisory.get("informational", "vulnerability")
    if kind not in KINDS:
        raise ValueError(f"unknown kind: {kind}")
    fields = {"id": advisory["id"], "package": advisory["package"], "kind": kind}
    for name in ("patched", "unaffected"):
        if versions.get(name):
            fields[name] = [requirement(text) for text in versions[name]]
    license = advisory.get("license", DEFAULT_LICENSE)
    if license != DEFAULT_LICENSE:
        # Its attribution is the address, says the license of the database.
        fields |= {"license": license, "url": advisory["url"]}
    # Strings and lists of strings without special characters are the same in JSON and TOML.
    members = ", ".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    return (advisory["package"], advisory["id"]), f"    {{ {members} }},\n"


def main(checkout, commit, date):
    if not re.fullmatch("[0-9a-f]{40}", commit):
        sys.exit(f"no full id of a commit: {commit}")
    taken = datetime.date.fromisoformat(date).isoformat()
    entries = []
    for path in pathlib.Path(checkout, "crates").rglob("*.md"):
        try:
            entries.append(entry(path))
        except (KeyError, ValueError) as error:
            sys.exit(f"{path}: {error!r}")
    lines = [line for _, line in sorted(filter(None, entries))]
    if not lines:
        sys.exit(f"no advisories in {checkout}")
    text = f"""{HEADER}
taken = "{taken}"
source = "https://github.com/rustsec/advisory-db"
commit = "{commit}"
# Public domain. Entries with another license name it, and the page that they are taken from.
license = "{DEFAULT_LICENSE}"
advisories = [
{"".join(lines)}]
"""
    tomllib.loads(text)
    pathlib.Path(__file__).with_name("advisories.toml").write_text(text, encoding="utf-8")
    print(f"{len(lines)} advisories of {taken}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
