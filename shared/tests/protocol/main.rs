//! The protocol over the memory adapter: accept, post, recover and the dead letter office, with
//! trouble on the way to the store.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test code")]

mod accept;
mod dead_letters;
mod direct;
mod guards;
mod payloads;
mod post;
mod recover;
mod regressions;
mod stage;
mod waiting;
