//! Design system of the console: pure functions that return HTML. They make no requests; the pages pass the content.
//!
//! The content security policy of the pages ([`shell::POLICY`]) forbids inline scripts and inline styles, so this module
//! writes no `style` attribute, no handler attribute and no inline script. maud escapes all text.

pub mod components;
pub mod format;
pub mod forms;
pub mod pictures;
pub mod shell;
