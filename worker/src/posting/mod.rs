//! Posts the work of received messages, and then deletes, releases or sets aside each message.

pub mod disposition;
pub mod lookup;
pub mod message_reader;
pub mod posting_handler;
pub mod settle;
mod spans;
