//! Names that most end-to-end tests use: scenarios and their plans, clients, processes, and waiting.

pub use crate::auditor::Auditor;
pub use crate::azurite::Azurite;
pub use crate::binaries::Binary;
pub use crate::client::{Answer, Client, Submission, path_of};
pub use crate::contracts::validate_xml;
pub use crate::process::{Launch, Process};
pub use crate::process_probe::ProcessProbe;
pub use crate::proxy::Mode;
pub use crate::raw_http::RawConnection;
pub use crate::scenario::{Plan, Scenario, StoreKind, fresh_account, fresh_id};
pub use crate::service::{Service, Settings, launch};
pub use crate::storage_proxy::{Likeness, StorageProxies};
pub use crate::wait::Stopwatch;
pub use crate::{deployment, python, service, wait, workspace};
