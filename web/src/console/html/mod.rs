//! The design system of the console: pure functions that return HTML. They read nothing and decide nothing; pages give them
//! what to show.
//!
//! The content security policy of the pages ([`shell::POLICY`]) allows no inline scripts and no inline styles, so nothing here
//! writes a `style` attribute, a handler attribute or a script with code. All text is escaped by maud.

pub mod components;
pub mod format;
pub mod forms;
pub mod gate;
pub mod pictures;
pub mod shell;
