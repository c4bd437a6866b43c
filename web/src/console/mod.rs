//! The console: pages for operators, in a browser.
//!
//! The console is a client of the API. Every page reads and acts through requests that [`local_api`] makes to the routes of
//! [`crate::api`] within this process, on behalf of the API key with which the operator signed in: the console shows nothing and
//! does nothing that the key could not read and do over HTTP, and each act is in the audit trail as one of that key.
//!
//! [`session`] is the cookie that contains the key, [`visitor`] the signed-in operator of a request, [`act`] a form that the
//! operator sent, [`live`] the stream of current values, [`html`] the parts of pages, and [`pages`] the pages themselves.

pub mod act;
pub mod addresses;
pub mod assets;
pub mod context;
pub mod html;
pub mod live;
pub mod local_api;
pub mod other_sites;
pub mod page_error;
pub mod pages;
pub mod routes;
pub mod session;
pub mod sign_in;
pub mod visitor;
