#![doc = include_str!("../README.md")]

pub mod error;
pub mod headers;
pub mod metrics;
pub mod query;

pub mod formats;

pub mod access;

pub mod admin;

pub mod api;

pub mod edge;

pub mod console;

pub mod server;

pub mod http_servers;

pub mod cli;

pub mod process;
