//! What pages show, in the form in which the API returns it.

use serde_json::Value;

use super::visit::Visit;

impl Visit {
    /// The cells of a table in the body of the page, row by row, by its caption.
    pub async fn rows(&self, caption: &str) -> Vec<Vec<String>> {
        let region = Value::from(format!("main [aria-label='{caption}']"));
        self.browser.wait_for(region.as_str().expect("a text")).await;
        let cells = "[...document.querySelectorAll(`${region} tbody tr`)]
            .map((row) => [...row.cells].map((cell) => cell.innerText.trim()))";
        let rows = self.browser.run(&format!("const region = {region}; return {cells}")).await;
        serde_json::from_value(rows).expect("a table has rows of texts")
    }

    /// The value with that name: a figure with its unit, or an entry of a list of names and values.
    pub async fn value(&self, name: &str) -> String {
        let script = format!(
            "const name = [...document.querySelectorAll('main dt')].find((it) => it.textContent === {});
            const value = name?.parentElement.querySelector('dd');
            return (value?.querySelector('code') ?? value)?.textContent.trim() ?? null",
            Value::from(name)
        );
        let found = self.browser.run(&script).await;
        found.as_str().unwrap_or_else(|| panic!("the page shows no {name}")).to_owned()
    }

    /// As [`Self::value`], as a number without its unit.
    pub async fn number(&self, name: &str) -> u64 {
        let shown = self.value(name).await;
        let number = shown.split(' ').next().unwrap_or_default();
        plain(number).parse().unwrap_or_else(|_| panic!("{name} is no number: {shown}"))
    }
}

/// A number without groups of digits, with the sign of ASCII or none.
pub fn plain(shown: &str) -> String {
    shown.replace(['\u{202f}', '+'], "").replace('\u{2212}', "-")
}

/// A time of the API as pages show it.
pub fn shown_time(rfc3339: &str) -> String {
    let (seconds, _) = rfc3339.split_once('.').expect("times of the API have milliseconds");
    format!("{} UTC", seconds.replace('T', " "))
}

/// A member of an object of the API that is a text; empty if it is missing.
pub fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// A list in an object of the API.
pub fn list<'a>(of: &'a Value, member: &str) -> &'a [Value] {
    let found = of.get(member).and_then(Value::as_array);
    found.unwrap_or_else(|| panic!("no list {member} in {of}"))
}
