//! The table of retries in the README lists every error code once, with its status, and agrees with the program about which
//! answers a client retries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use postonce_tests::workspace;
use postonce_web::error::{Code, is_temporary};

const HEADER: &str = "| answer | retry? | how, and how long |\n| --- | --- | --- |\n";

/// A code as the table lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    /// The status before it.
    status: u16,
    is_retried: bool,
}

/// The codes of a table, and the statuses that are listed without one.
fn listed(readme: &str) -> (BTreeMap<String, Listed>, BTreeSet<u16>) {
    let (_, table) = readme.split_once(HEADER).expect("the README has the table");
    let (mut codes, mut bare) = (BTreeMap::new(), BTreeSet::new());
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", answers, retry, how, ""] = cells.as_slice() else { panic!("not three cells: {row}") };
        assert!(["yes", "no"].contains(retry) && !how.is_empty(), "{row}");
        for of_status in answers.split(';') {
            let of_status = of_status.trim();
            let number = of_status.split(' ').next().and_then(|word| word.parse().ok());
            let names: Vec<&str> = of_status.split('`').skip(1).step_by(2).collect();
            bare.extend(number.filter(|_| names.is_empty()));
            for name in names {
                let status = number.unwrap_or_else(|| panic!("no status before {name}"));
                let before = codes.insert(name.to_owned(), Listed { status, is_retried: *retry == "yes" });
                assert_eq!(before, None, "{name} is listed twice");
            }
        }
    }
    (codes, bare)
}

fn expected() -> BTreeMap<String, Listed> {
    let row = |code: &Code| {
        let published = code.published();
        let status = published.status.as_u16();
        (published.code.to_owned(), Listed { status, is_retried: is_temporary(status) })
    };
    Code::ALL.iter().map(row).collect()
}

#[test]
fn every_error_code_is_in_the_table_of_retries() {
    let readme = fs::read_to_string(workspace::root().join("README.md")).unwrap();
    let (codes, bare) = listed(&readme);
    let expected = expected();
    for (code, row) in &expected {
        assert_eq!(codes.get(code), Some(row), "{code} in the table of README.md");
    }
    let unknown: Vec<&String> = codes.keys().filter(|code| !expected.contains_key(*code)).collect();
    assert!(unknown.is_empty(), "README.md lists codes that do not exist: {unknown:?}");
    assert_eq!(bare, BTreeSet::from([200, 202]), "the answers to an accepted request");
}

#[test]
fn a_row_that_is_missing_or_wrong_is_found() {
    let found = |rows: &str| listed(&format!("{HEADER}{rows}")).0;
    let row = found("| 429 `rate_limited`; 503 `overloaded` | yes | later |\n| 200 | no | final |\n");
    let expected = expected();
    assert!(row.iter().all(|(code, row)| expected.get(code) == Some(row)) && row.len() == 2, "{row:?}");
    for wrong in ["| 429 `rate_limited` | no | later |\n", "| 400 `rate_limited` | yes | later |\n"] {
        assert_ne!(found(wrong).get("rate_limited"), expected.get("rate_limited"), "{wrong}");
    }
}
