//! Settings for scheduled backups.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{number, seconds};

/// When a process takes backups by itself.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Backups")]
pub struct BackupSchedule {
    /// Folder to which a process with the store in a SQLite file also writes backups, one process at a time; it is created if
    /// it is missing, and should be on another disk; by default none are written; on Azure, schedule the backup command
    #[arg(long, value_name = "FOLDER")]
    pub backup_folder: Option<PathBuf>,
    /// Seconds between two backups in backup-folder, from 60 to 31536000
    #[arg(long = "backup-every-s", value_name = "SECONDS", default_value = "86400")]
    #[arg(value_parser = seconds(60..=31_536_000))]
    pub backup_every: Duration,
    /// Number of backups that are kept in backup-folder, from 1 to 10000; older ones are removed
    #[arg(long, value_name = "COUNT", default_value = "7", value_parser = number::<u16>(1..=10_000))]
    pub backup_keep: u16,
}
