//! The protocol over the memory adapter: accept, post, recover and the dead letter office, with
//! trouble on the way to the store.

mod accept;
mod dead_letters;
mod post;
mod recover;
mod stage;
