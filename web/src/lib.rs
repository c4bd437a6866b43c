#![doc = include_str!("../README.md")]

pub mod doors;
pub mod routes;
pub mod server;
pub mod tls;

pub mod gate_desk;
pub mod handlers;

pub mod auth;
pub mod formats;
pub mod headers;
pub mod limits;
pub mod negotiate;
pub mod pages;
pub mod paths;
pub mod signatures;
pub mod soap;
pub mod translate;
pub mod verify_command;

pub mod books;
pub mod costs;
pub mod listeners;
pub mod office;

pub mod error;
pub mod respond;

pub mod audit;
pub mod metrics;
pub mod observe;

pub mod adoption;
pub mod api_keys;
pub mod backup_command;
pub mod keyring;
pub mod keys_command;
pub mod partner_desk;
pub mod partner_ring;
pub mod partner_terms;
pub mod partners_command;
pub mod scopes;

pub mod openapi;
pub mod parameters;
pub mod refusals;

pub use postonce_worker::readiness;

pub mod process;
