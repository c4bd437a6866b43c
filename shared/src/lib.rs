#![doc = include_str!("../README.md")]

pub mod domain;

pub mod ports;

pub mod accept;
pub mod account_cache;
pub mod account_turns;
pub mod claim_check;
pub mod completions;
pub mod dead_letter_office;
pub mod dispatch;
pub mod enquire;
pub mod envelope;
pub mod gate;
pub mod group_commit;
pub mod legacy;
pub mod order_numbers;
pub mod owed_replies;
pub mod partner_grants;
pub mod partner_memory;
pub mod post;
pub mod queue_count;
pub mod recover;
pub mod reply_to;
pub mod ring_secret;
pub mod sweep;
pub mod token_bucket;
pub mod verify;
pub mod xml;

pub mod prices;
pub mod scaling;

pub mod bank;

pub mod audit;
pub mod config;
pub mod telemetry;

pub mod adapters;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
pub mod decorators;
