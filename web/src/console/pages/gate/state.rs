//! State of the gate page: the requested act, the result of the last act, and the entered values.

use postonce_schemas::json::{GateChanged, Overview, Problem};

use crate::console::addresses::{Section, with_query};
use crate::console::viewer::Viewer;

/// Act that awaits confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Release the gate.
    Release,
    /// Hold the gate.
    Hold,
    /// Change the scheduled release of a held gate.
    Schedule,
}

impl Step {
    /// Returns the code in addresses and forms.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Hold => "hold",
            Self::Schedule => "schedule",
        }
    }

    /// Parses the code.
    pub fn of_code(code: &str) -> Option<Self> {
        [Self::Release, Self::Hold, Self::Schedule].into_iter().find(|step| step.code() == code)
    }

    /// Returns the address of the page with this step.
    pub fn path(self) -> String {
        with_query(Section::Gate.path(), &[("confirm", Some(self.code()))])
    }

    /// Returns whether the step applies to a held gate.
    pub const fn is_of_held(self) -> bool {
        match self {
            Self::Release | Self::Schedule => true,
            Self::Hold => false,
        }
    }
}

/// Result of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The gate is released, and all processes acknowledged.
    Released,
    /// The gate is released, but not all processes are known to apply it.
    ReleasedPartly,
    /// The gate is held, and all processes acknowledged.
    Held,
    /// The gate is held, but not all processes are known to apply it.
    HeldPartly,
    /// Nothing was changed, because the gate had changed after the form was shown.
    Nothing,
}

impl Done {
    const ALL: [Self; 5] =
        [Self::Released, Self::ReleasedPartly, Self::Held, Self::HeldPartly, Self::Nothing];

    /// Returns the code in addresses.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::ReleasedPartly => "released-partly",
            Self::Held => "held",
            Self::HeldPartly => "held-partly",
            Self::Nothing => "not-done",
        }
    }

    /// Parses the code.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|done| done.code() == code)
    }

    /// Derives the result from the answer of the API.
    pub fn of_change(changed: &GateChanged) -> Self {
        let acknowledged = changed.listeners.iter().all(|listener| listener.acknowledged);
        let is_complete = acknowledged && changed.registry_problem.is_none();
        match (changed.state == "held", is_complete) {
            (true, true) => Self::Held,
            (true, false) => Self::HeldPartly,
            (false, true) => Self::Released,
            (false, false) => Self::ReleasedPartly,
        }
    }
}

/// Values of a form that the API refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Entered<'a> {
    /// Entered reason.
    pub reason: &'a str,
    /// Entered time of the release, as the browser sent it.
    pub release_at: &'a str,
    /// Refusal by the API, if there is one.
    pub refusal: Option<&'a Problem>,
}

/// Content of the page.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The bank with the current gate.
    pub overview: &'a Overview,
    /// Whether the gate could be read from the store.
    pub is_read: bool,
    /// Act that awaits confirmation.
    pub step: Option<Step>,
    /// Result of the last act.
    pub done: Option<Done>,
    /// Values that were entered before.
    pub entered: &'a Entered<'a>,
    /// The operator.
    pub viewer: &'a Viewer,
}
