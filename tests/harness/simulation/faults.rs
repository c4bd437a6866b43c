//! The kinds of faults, their frequency in a run, and their counts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::scheduler::Scheduler;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process ends at an `await`.
    Crash,
    /// A process is asked to drain.
    Drain,
    /// A process stops running while time passes.
    Pause,
    /// A process starts with a wrong wall clock.
    ClockSkew,
    /// The store executes a request, but the response is lost.
    AnswerLost,
    /// A request never reaches the store.
    RequestLost,
    /// The store executes a request long after its sender gave up.
    WriteLate,
    /// The store executes a request twice; the sender receives the second response.
    WriteTwice,
    /// The store temporarily rejects a request.
    Throttled,
    /// The store is slow for some time.
    SlowStore,
    /// The store is unavailable for some time.
    Outage,
    /// A lease ends immediately, so other processes receive the message too.
    LeaseCut,
    /// A message is on the queue twice.
    MessageTwice,
    /// A message becomes visible much later.
    MessageLate,
    /// Messages are received in another order.
    Reordered,
    /// An expired receipt was used, and refused.
    StaleReceipt,
    /// A ring is lost.
    RingLost,
    /// A ring arrives without a reason.
    RingSpurious,
    /// A reply to a waiting process is lost.
    ReplyLost,
    /// The response to a client is lost.
    ResponseLost,
    /// A client's request arrives a second time, at any web process.
    RequestTwice,
    /// The gate is held for some time.
    GateHeld,
    /// An adversary puts a forged message on a queue.
    MessageForged,
    /// An adversary receives messages, and changes, deletes or hides them.
    MessageTaken,
    /// A payload of work is lost.
    PayloadLost,
}

impl Fault {
    /// All kinds of faults.
    pub const ALL: [Self; 25] = [
        Self::Crash,
        Self::Drain,
        Self::Pause,
        Self::ClockSkew,
        Self::AnswerLost,
        Self::RequestLost,
        Self::WriteLate,
        Self::WriteTwice,
        Self::Throttled,
        Self::SlowStore,
        Self::Outage,
        Self::LeaseCut,
        Self::MessageTwice,
        Self::MessageLate,
        Self::Reordered,
        Self::StaleReceipt,
        Self::RingLost,
        Self::RingSpurious,
        Self::ReplyLost,
        Self::ResponseLost,
        Self::RequestTwice,
        Self::GateHeld,
        Self::MessageForged,
        Self::MessageTaken,
        Self::PayloadLost,
    ];

    /// Returns the name in output and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Drain => "drain",
            Self::Pause => "pause",
            Self::ClockSkew => "clock-skew",
            Self::AnswerLost => "answer-lost",
            Self::RequestLost => "request-lost",
            Self::WriteLate => "write-late",
            Self::WriteTwice => "write-twice",
            Self::Throttled => "throttled",
            Self::SlowStore => "slow-store",
            Self::Outage => "outage",
            Self::LeaseCut => "lease-cut",
            Self::MessageTwice => "message-twice",
            Self::MessageLate => "message-late",
            Self::Reordered => "reordered",
            Self::StaleReceipt => "stale-receipt",
            Self::RingLost => "ring-lost",
            Self::RingSpurious => "ring-spurious",
            Self::ReplyLost => "reply-lost",
            Self::ResponseLost => "response-lost",
            Self::RequestTwice => "request-twice",
            Self::GateHeld => "gate-held",
            Self::MessageForged => "message-forged",
            Self::MessageTaken => "message-taken",
            Self::PayloadLost => "payload-lost",
        }
    }

    /// Finds the fault by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Returns the maximum frequency, per thousand occasions.
    const fn permille_max(self) -> u32 {
        match self {
            // Per step.
            Self::Crash => 4,
            Self::Pause => 2,
            Self::Drain | Self::SlowStore | Self::Outage | Self::GateHeld | Self::RingSpurious => 1,
            // Per start of a process.
            Self::ClockSkew => 700,
            // Per request, message or ring.
            Self::AnswerLost | Self::RequestLost | Self::Throttled | Self::PayloadLost => 120,
            Self::WriteLate | Self::WriteTwice | Self::LeaseCut | Self::MessageTwice => 150,
            Self::MessageLate => 200,
            Self::Reordered => 500,
            Self::RingLost | Self::ReplyLost => 600,
            Self::ResponseLost | Self::RequestTwice => 300,
            // Per action of the adversary.
            Self::MessageForged | Self::MessageTaken => 800,
            // Results from other faults.
            Self::StaleReceipt => 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Frequency of each fault in a run. Runs with few kinds of faults find other mistakes than runs with all kinds.
#[derive(Debug, Clone, Default)]
pub struct FaultMix {
    permille: BTreeMap<Fault, u32>,
}

impl FaultMix {
    /// Draws a mix from the seed. Faults in `without` never occur.
    pub fn draw(scheduler: &Scheduler, without: &[Fault]) -> Self {
        let mut permille = BTreeMap::new();
        for fault in Fault::ALL {
            // Drawn for every kind, so that disabling one kind does not change the others.
            let (is_on, part) = (scheduler.below(100) < 60, scheduler.below(1000));
            let max = u64::from(fault.permille_max());
            let drawn = max.saturating_mul(part).div_ceil(1000);
            if is_on && !without.contains(&fault) {
                permille.insert(fault, u32::try_from(drawn).unwrap_or(0));
            }
        }
        Self { permille }
    }

    /// Returns the frequency of a fault, per thousand occasions.
    pub fn permille(&self, fault: Fault) -> u32 {
        self.permille.get(&fault).copied().unwrap_or(0)
    }
}

/// Number of occurrences of each fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    /// Counts one more fault.
    pub fn add(&mut self, fault: Fault) {
        let count = self.0.entry(fault).or_default();
        *count = count.saturating_add(1);
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (fault, count) in &other.0 {
            let sum = self.0.entry(*fault).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Returns the number of occurrences of a fault.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// Returns the number of occurrences of all faults.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Draws the duration of a lasting fault.
pub fn length(fault: Fault, scheduler: &Scheduler) -> Duration {
    let seconds_max = match fault {
        Fault::Pause | Fault::SlowStore => 40,
        Fault::GateHeld => 60,
        Fault::MessageLate | Fault::MessageTaken => 90,
        // Sometimes longer than the visibility timeout times the maximum dequeue count.
        Fault::Outage => 150,
        Fault::Crash
        | Fault::Drain
        | Fault::ClockSkew
        | Fault::AnswerLost
        | Fault::RequestLost
        | Fault::WriteLate
        | Fault::WriteTwice
        | Fault::Throttled
        | Fault::LeaseCut
        | Fault::MessageTwice
        | Fault::Reordered
        | Fault::StaleReceipt
        | Fault::RingLost
        | Fault::RingSpurious
        | Fault::ReplyLost
        | Fault::ResponseLost
        | Fault::RequestTwice
        | Fault::MessageForged
        | Fault::PayloadLost => 0,
    };
    scheduler.up_to(Duration::from_secs(seconds_max))
}
