//! Words that several pages share.

use maud::{Markup, html};

use crate::console::html::format;
use crate::console::html::shell::Section;

/// Returns a number with what it counts, such as `1 process` or `3 processes`.
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", format::count(number), plural(number, one, several))
}

/// Returns the word for what a number counts.
pub const fn plural<'a>(number: u64, one: &'a str, several: &'a str) -> &'a str {
    if number == 1 { one } else { several }
}

/// Returns the length of a list.
pub fn length<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}

/// Returns a link to a section, or only its words if the operator may not read it.
pub fn link(sections: &[Section], section: Section, text: &str) -> Markup {
    html! {
        @if sections.contains(&section) { a href=(section.path()) { (text) } } @else { (text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let counts = [(0, "0 processes"), (1, "1 process"), (1_200, "1\u{202f}200 processes")];
        for (number, text) in counts {
            assert_eq!(counted(number, "process", "processes"), text);
        }
    }

    #[test]
    fn only_what_may_be_read_is_a_link() {
        let text = |sections: &[Section]| link(sections, Section::Gate, "The gate").into_string();
        assert_eq!(text(&[Section::Gate]), r#"<a href="/console/gate">The gate</a>"#);
        assert_eq!(text(&[Section::Queues]), "The gate");
    }
}
