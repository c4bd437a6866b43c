//! The HTTP API: routes, handlers, the translation between documents and the domain, and the OpenAPI document.

pub mod account_service;
pub mod batch_report;
pub mod batch_service;
pub mod batch_upload;
pub mod conditions;
pub mod gate_report;
pub mod handlers;
pub mod negotiate;
pub mod openapi;
pub mod pages;
pub mod panics;
pub mod parameters;
pub mod partner_report;
pub mod paths;
pub mod refusals;
pub mod respond;
pub mod routes;
pub mod scrubber_report;
pub mod soap;
pub mod statement_page;
pub mod statement_query;
pub mod static_document;
pub mod surface;
pub mod translate;
