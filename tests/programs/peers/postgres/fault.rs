//! Faults of the database. Whether a failed statement took effect is unknown.

use std::error::Error;
use std::fmt;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

/// A fault.
#[derive(Debug)]
pub enum Fault {
    /// No connection.
    Pool(PoolError),
    /// A statement failed.
    Database(tokio_postgres::Error),
    /// The stored rows contradict each other.
    Corrupt(&'static str),
}

impl Fault {
    /// Whether a unique key existed already.
    pub fn is_duplicate(&self) -> bool {
        self.state() == Some(&SqlState::UNIQUE_VIOLATION)
    }

    /// Whether a number exceeded the range of its column.
    pub fn is_out_of_range(&self) -> bool {
        self.state() == Some(&SqlState::NUMERIC_VALUE_OUT_OF_RANGE)
    }

    /// The SQLSTATE.
    fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Database(error) => error.code(),
            Self::Pool(_) | Self::Corrupt(_) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool(_) => "no connection to the database",
            Self::Database(_) => "the database refused a statement",
            Self::Corrupt(what) => what,
        })
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Pool(error) => Some(error),
            Self::Database(error) => Some(error),
            Self::Corrupt(_) => None,
        }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}
