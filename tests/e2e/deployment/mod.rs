//! The files for containers: they are valid, they fit the programs, and what they start works.

mod bicep;
mod compose;
mod compose_images;
mod compose_run;
mod compose_upgrade;
mod container_apps;
mod containerfile;
mod flows;
mod image;
mod machine;
mod manifests;
mod pods;
mod scaling;
