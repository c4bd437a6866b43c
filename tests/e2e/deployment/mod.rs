//! The files for containers: they are valid, they fit the programs, and what they start works.

mod compose;
mod compose_run;
mod containerfile;
mod flows;
mod manifests;
mod pods;
mod scaling;
