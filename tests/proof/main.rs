//! Short forms of the simulation and of the model check, and the adapter for Azure over a storage that fails. The first two use
//! the processors all the time, so they are not in the executable of the end-to-end tests, which mostly wait.

mod azure;
mod model;
mod simulation;
