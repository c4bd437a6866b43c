//! Console: web pages for operators.
//!
//! The console is a client of the API. Every page reads and acts through requests that [`local_api`] makes to the routes
//! of [`crate::api`] within this process, with the API key of the signed-in operator. The console can thus show and do
//! only what the key could over HTTP, and the audit trail records each act under that key.
//!
//! [`addresses`] has the sections and all paths, and [`routes`] what answers at each of them. [`session`] is the cookie that
//! contains the key, [`visitor`] the request of a signed-in operator, [`viewer`] what pages know of the operator, [`act`] a
//! submitted form, [`live`] the stream of current values, [`html`] the parts of pages, and [`pages`] the pages themselves.

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
pub mod values;
pub mod viewer;
pub mod visitor;
