//! Keys by their names in `KeyboardEvent.key`.

use serde_json::{Value, json};

/// Keys without a printable character, and their WebDriver code points.
const CODES: [(&str, char); 19] = [
    ("Alt", '\u{E00A}'),
    ("ArrowDown", '\u{E015}'),
    ("ArrowLeft", '\u{E012}'),
    ("ArrowRight", '\u{E014}'),
    ("ArrowUp", '\u{E013}'),
    ("Backspace", '\u{E003}'),
    ("Control", '\u{E009}'),
    ("Delete", '\u{E017}'),
    ("End", '\u{E010}'),
    ("Enter", '\u{E007}'),
    ("Escape", '\u{E00C}'),
    ("F5", '\u{E035}'),
    ("Home", '\u{E011}'),
    ("Meta", '\u{E03D}'),
    ("PageDown", '\u{E00F}'),
    ("PageUp", '\u{E00E}'),
    ("Shift", '\u{E008}'),
    ("Space", ' '),
    ("Tab", '\u{E004}'),
];

/// Returns the parameters of the WebDriver command that presses and releases a key, optionally while other keys are held, as
/// in `Shift+Tab`.
pub(super) fn actions(keys: &str) -> Value {
    // `+` is also a key.
    let names: Vec<&str> = if keys == "+" { vec![keys] } else { keys.split('+').collect() };
    let codes: Vec<String> = names.into_iter().map(|name| code(name).to_string()).collect();
    let down = codes.iter().map(|code| json!({"type": "keyDown", "value": code}));
    let up = codes.iter().rev().map(|code| json!({"type": "keyUp", "value": code}));
    let actions: Vec<Value> = down.chain(up).collect();
    json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})
}

fn code(name: &str) -> char {
    let mut characters = name.chars();
    if let (Some(character), None) = (characters.next(), characters.next()) {
        return character;
    }
    let listed = CODES.iter().find(|(listed, _)| *listed == name);
    listed.unwrap_or_else(|| panic!("no key is named {name:?}")).1
}
