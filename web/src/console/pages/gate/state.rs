//! What the page of the gate knows: the act that is asked for, what the last one did, and what was entered.

use postonce_schemas::json::{GateChanged, Overview, Problem};

use super::PAGE;

/// An act that waits for its confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To release the gate.
    Release,
    /// To hold the gate.
    Hold,
    /// To change the scheduled release of a held gate.
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

    /// Returns the step with a code.
    pub fn of_code(code: &str) -> Option<Self> {
        [Self::Release, Self::Hold, Self::Schedule].into_iter().find(|step| step.code() == code)
    }

    /// Returns the address of the page with this step.
    pub fn path(self) -> String {
        format!("{PAGE}?confirm={}", self.code())
    }

    /// Returns whether the step changes a held gate.
    pub const fn is_of_held(self) -> bool {
        match self {
            Self::Release | Self::Schedule => true,
            Self::Hold => false,
        }
    }
}

/// What an act did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The gate is released, and all processes apply that.
    Released,
    /// The gate is released, but it is not known of all processes that they apply it.
    ReleasedPartly,
    /// The gate is held, and all processes apply that.
    Held,
    /// The gate is held, but it is not known of all processes that they apply it.
    HeldPartly,
    /// Nothing, because the gate was changed after the form was shown.
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

    /// Returns the result with a code.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|done| done.code() == code)
    }

    /// Returns the result of a change.
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

/// What was entered into a form that the API refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Entered<'a> {
    /// The reason.
    pub reason: &'a str,
    /// The time of the release, as the browser sent it.
    pub release_at: &'a str,
    /// Why it was refused.
    pub refusal: Option<&'a Problem>,
}

/// What the page shows.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The bank with the current gate.
    pub overview: &'a Overview,
    /// Whether the gate could be read from the store.
    pub is_read: bool,
    /// The act that waits for its confirmation.
    pub step: Option<Step>,
    /// What the last act did.
    pub done: Option<Done>,
    /// What was entered before.
    pub entered: &'a Entered<'a>,
    /// Whether the operator may change the gate.
    pub may_change: bool,
    /// The token of forms.
    pub csrf: &'a str,
}
