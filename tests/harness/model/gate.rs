//! The gate: an operator holds it, and a hold is complete when every registered process has acknowledged it. From then
//! on, nothing is posted until the release.
//!
//! Models `shared/src/cluster/gate/permits.rs`, `shared/src/cluster/registration.rs`,
//! `worker/src/listening/process_gate.rs` (reads and acknowledgments), `worker/src/upkeep/heartbeat.rs` (registration,
//! drain, removal) and `web/src/admin/gate.rs` (the operator).
//!
//! Assumptions: one process, because the operator waits for each process separately. No permit is kept until other
//! processes consider the entry stale, five minutes after the process itself does. Two cases are excluded, which may
//! still be written after the acknowledgment: a commit of a process that is suspended for longer, and a commit on Azure
//! that its sender gave up without a response.

#![expect(clippy::arithmetic_side_effects, reason = "the numbers of a bounded model are small")]

use super::explore::{Goal, Protocol, protocol};

const QUIET: &str = "nothing is posted from the completion of a hold until its release";

protocol! { Gate;
    PostedUnregistered: "there are permits without an entry in the registry" => QUIET, ALL;
    GateKnownFromBeforeRegistration: "with its registration a process does not forget what it knew of the gate"
        => QUIET, ALL;
    ReadFromBeforeRegistrationApplied: "a read that began before the registration is applied" => QUIET, ALL;
    CheckedOneAfterTheOther: "the gate and the registration are not checked in one step" => QUIET, ALL;
    CountedAfterCheck: "a permit counts as in use only after the check" => QUIET, ALL;
    AcknowledgedDuringPermit: "a hold is acknowledged while a permit is in use" => QUIET, ALL;
    AcknowledgedUnread: "a hold is acknowledged before it is applied" => QUIET, ALL;
    OlderReadApplied: "a read replaces a newer value" => QUIET, ALL;
    ReliesTooLong: "a process relies on its entry for longer than the others" => QUIET, ALL;
    RegisteredWhenSent: "a process counts itself as registered before its entry is written" => QUIET, ALL;
    PermitsDuringRemoval: "a process that drains gives permits while its entry is removed" => QUIET, ALL;
}

/// Maximum number of each kind of event.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    holds: u8,
    /// Writes of the registry entry.
    announcements: u8,
    /// Times that the entry is not renewed in time.
    lapses: u8,
    drains: u8,
}

const ALL: Budget = Budget { holds: 2, announcements: 2, lapses: 1, drains: 1 };
const SMALL: &[(&str, Budget)] = &[("gate: two holds, a lapse, a drain", ALL)];
const LARGE: &[(&str, Budget)] = &[("gate", Budget { holds: 4, announcements: 4, lapses: 3, drains: 1 })];

/// The gate is represented by its epoch; an even epoch means released.
fn is_released(epoch: u8) -> bool {
    epoch.is_multiple_of(2)
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Operator {
    #[default]
    Idle,
    Held,
    Waits,
    /// Every registered process has acknowledged the hold.
    Complete,
}

/// The registry entry as other processes see it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Entry {
    #[default]
    Absent,
    Current,
    Stale,
}

/// A write of the registry entry.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Announcement {
    #[default]
    None,
    Sent,
    Written,
}

/// A read whose response is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Read {
    epoch: u8,
    /// Whether nothing was forgotten since it began.
    is_current: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Permit {
    #[default]
    None,
    /// Work has begun that will request a permit.
    Wanted,
    Counted,
    /// Exists only without the rule that a permit is counted and checked in one step.
    HalfChecked,
    Given,
}

/// Progress of the process towards acknowledging the hold of an epoch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Call {
    #[default]
    None,
    Heard(u8),
    Reads(u8),
    Waits(u8),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    #[default]
    Runs,
    Drains,
    /// The entry is about to be removed.
    Leaves,
    Left,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct State {
    gate: u8,
    operator: Operator,
    entry: Entry,
    announcement: Announcement,
    /// Whether the process considers itself registered.
    is_listed: bool,
    known: Option<u8>,
    /// One read of the process itself, and one for the acknowledgment.
    reads: [Option<Read>; 2],
    permit: Permit,
    call: Call,
    life: Life,
    was_interrupted: bool,
    budget: Budget,
    wrong: bool,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Hold,
    CallProcesses,
    Release,
    SendEntry,
    WriteEntry,
    Register,
    /// The process does not rely on its entry any more; later, other processes do not either.
    Lapse,
    OutOfDate,
    BeginRead,
    EndRead(usize),
    BeginWork,
    CountPermit,
    CheckPermit,
    Post,
    Hear,
    Acknowledge,
    Drain,
    EndWork,
    RemoveEntry,
}

impl Protocol for Gate {
    type State = State;
    type Step = Step;

    const GOALS: &[Goal<State>] = &[
        ("a listed process acknowledges a hold", |it| it.operator == Operator::Complete && it.is_listed),
        ("a hold is complete that the process does not know", |it| {
            it.operator == Operator::Complete && it.known.is_some_and(is_released)
        }),
        ("a process posts after an interruption", |it| it.permit == Permit::Given && it.was_interrupted),
        ("a process posts while it drains", |it| it.permit == Permit::Given && it.life == Life::Drains),
        ("a permit is in use", |it| it.permit == Permit::Given && matches!(it.call, Call::Waits(_))),
        ("a permit is asked for at the end", |it| it.permit == Permit::Counted && it.life == Life::Left),
    ];

    fn start(&self) -> State {
        State { budget: self.budget, ..State::default() }
    }

    fn steps(&self, it: &State) -> Vec<Step> {
        let State { operator, announcement, permit, life, budget, .. } = *it;
        let is_out_of_use = !it.is_listed || self.omits(Mutation::ReliesTooLong);
        let may_acknowledge = self.is_open(it) || self.is_unused(it);
        let is_asked = matches!(permit, Permit::Counted | Permit::HalfChecked);
        let may_announce = life == Life::Runs && budget.announcements > 0;
        let is_quiet = announcement == Announcement::None;
        let all = [
            (operator == Operator::Idle && budget.holds > 0, Step::Hold),
            (operator == Operator::Held && it.call == Call::None, Step::CallProcesses),
            (matches!(operator, Operator::Waits | Operator::Complete), Step::Release),
            (is_quiet && may_announce, Step::SendEntry),
            (announcement == Announcement::Sent, Step::WriteEntry),
            (announcement == Announcement::Written, Step::Register),
            (it.is_listed && budget.lapses > 0, Step::Lapse),
            (it.entry == Entry::Current && is_out_of_use && it.has_no_permit(), Step::OutOfDate),
            (it.reads[0].is_none(), Step::BeginRead),
            (it.reads[0].is_some(), Step::EndRead(0)),
            (it.reads[1].is_some(), Step::EndRead(1)),
            (permit == Permit::None && life == Life::Runs, Step::BeginWork),
            (permit == Permit::Wanted, Step::CountPermit),
            (is_asked, Step::CheckPermit),
            (permit == Permit::Given, Step::Post),
            (matches!(it.call, Call::Heard(_)), Step::Hear),
            (matches!(it.call, Call::Waits(_)) && may_acknowledge, Step::Acknowledge),
            (life == Life::Runs && budget.drains > 0, Step::Drain),
            (life == Life::Drains && is_quiet && it.has_no_permit(), Step::EndWork),
            (life == Life::Leaves && it.has_no_permit(), Step::RemoveEntry),
        ];
        all.into_iter().filter_map(|(is_possible, step)| is_possible.then_some(step)).collect()
    }

    fn take(&self, it: &mut State, step: Step) {
        match step {
            Step::Hold => {
                it.budget.holds -= 1;
                (it.gate, it.operator) = (it.gate + 1, Operator::Held);
            }
            Step::CallProcesses => {
                (it.operator, it.call) = match it.entry {
                    Entry::Current => (Operator::Waits, Call::Heard(it.gate)),
                    Entry::Absent | Entry::Stale => (Operator::Complete, Call::None),
                }
            }
            Step::Release => (it.gate, it.operator) = (it.gate + 1, Operator::Idle),
            Step::SendEntry => {
                it.budget.announcements -= 1;
                it.announcement = Announcement::Sent;
                if self.omits(Mutation::RegisteredWhenSent) {
                    self.register(it, true);
                }
            }
            Step::WriteEntry => (it.announcement, it.entry) = (Announcement::Written, Entry::Current),
            Step::Register => {
                it.announcement = Announcement::None;
                // A late response does not extend the registration.
                self.register(it, it.entry == Entry::Current);
            }
            Step::Lapse => {
                it.budget.lapses -= 1;
                (it.is_listed, it.was_interrupted) = (false, true);
            }
            Step::OutOfDate => it.entry = Entry::Stale,
            Step::BeginRead => it.reads[0] = Some(Read { epoch: it.gate, is_current: true }),
            Step::EndRead(read) => self.end_read(it, read),
            Step::BeginWork => it.permit = Permit::Wanted,
            Step::CountPermit => it.permit = Permit::Counted,
            Step::CheckPermit => self.check(it),
            Step::Post => {
                it.wrong |= it.operator == Operator::Complete;
                it.permit = Permit::None;
            }
            Step::Hear | Step::Acknowledge => self.answer(it),
            Step::Drain => (it.life, it.budget.drains) = (Life::Drains, it.budget.drains - 1),
            Step::EndWork => {
                it.life = Life::Leaves;
                it.is_listed &= self.omits(Mutation::PermitsDuringRemoval);
            }
            Step::RemoveEntry => (it.life, it.entry) = (Life::Left, Entry::Absent),
        }
    }

    fn violated(&self, it: &State) -> Option<&'static str> {
        it.wrong.then_some(QUIET)
    }
}

impl State {
    fn has_no_permit(&self) -> bool {
        matches!(self.permit, Permit::None | Permit::Wanted)
    }
}

impl Gate {
    fn is_open(&self, state: &State) -> bool {
        let is_listed = state.is_listed || self.omits(Mutation::PostedUnregistered);
        is_listed && state.known.is_some_and(is_released)
    }

    /// Returns whether an acknowledgment sees no permit in use.
    fn is_unused(&self, state: &State) -> bool {
        let is_counted = state.permit == Permit::Given || !self.omits(Mutation::CountedAfterCheck);
        state.has_no_permit() || !is_counted || self.omits(Mutation::AcknowledgedDuringPermit)
    }

    fn register(&self, state: &mut State, is_current: bool) {
        if !state.is_listed && !self.omits(Mutation::GateKnownFromBeforeRegistration) {
            state.known = None;
            state.reads.iter_mut().flatten().for_each(|read| read.is_current = false);
        }
        state.is_listed = is_current;
    }

    fn end_read(&self, state: &mut State, read: usize) {
        let Some(Read { epoch, is_current }) = state.reads[read].take() else { return };
        let is_current = is_current || self.omits(Mutation::ReadFromBeforeRegistrationApplied);
        let is_newer =
            state.known.is_none_or(|known| known < epoch) || self.omits(Mutation::OlderReadApplied);
        if is_current && is_newer {
            state.known = Some(epoch);
        }
        if let (1, Call::Reads(epoch)) = (read, state.call) {
            state.call = Call::Waits(epoch);
        }
    }

    /// Takes the next step towards the acknowledgment.
    fn answer(&self, state: &mut State) {
        let is_unread = self.omits(Mutation::AcknowledgedUnread);
        state.call = match state.call {
            Call::Heard(epoch) if state.known == Some(epoch) || is_unread => Call::Waits(epoch),
            Call::Heard(epoch) => {
                state.reads[1] = Some(Read { epoch: state.gate, is_current: true });
                Call::Reads(epoch)
            }
            Call::Waits(epoch) => {
                let applied = if is_unread { Some(epoch) } else { state.known };
                if state.operator == Operator::Waits && applied == Some(state.gate) {
                    state.operator = Operator::Complete;
                }
                Call::None
            }
            Call::None | Call::Reads(_) => state.call,
        };
    }

    fn check(&self, state: &mut State) {
        let (is_second, apart) =
            (state.permit == Permit::HalfChecked, self.omits(Mutation::CheckedOneAfterTheOther));
        let is_given = match (apart, is_second) {
            (false, second) => second || self.is_open(state),
            (true, false) => state.known.is_some_and(is_released),
            (true, true) => state.is_listed,
        };
        let is_half = !is_second && (apart || self.omits(Mutation::CountedAfterCheck));
        let checked = if is_half { Permit::HalfChecked } else { Permit::Given };
        state.permit = if is_given { checked } else { Permit::None };
    }
}
