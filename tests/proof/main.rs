//! Short forms of the simulation and of the model check. They use the processors all the time, so they are not in the
//! executable of the end-to-end tests, which mostly wait.

mod model;
mod simulation;
