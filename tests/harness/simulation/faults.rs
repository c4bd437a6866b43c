//! What can go wrong, how often it does in one run, and how often it did.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::scheduler::Scheduler;

/// Everything that can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process is gone, at whatever `await` it stood.
    Crash,
    /// A process is asked to stop, and finishes what it has in hand.
    Drain,
    /// A process stands still, and time goes on.
    Pause,
    /// A process whose clock on the wall is wrong.
    ClockSkew,
    /// A request to the store took place; its answer is lost.
    AnswerLost,
    /// A request to the store never arrives.
    RequestLost,
    /// A request to the store takes place long after whoever asked gave up.
    WriteLate,
    /// A request to the store takes place twice, and the second answer is heard.
    WriteTwice,
    /// The store refuses for now.
    Throttled,
    /// The store is slow for some time.
    SlowStore,
    /// The store is away for some time.
    Outage,
    /// A lease ends at once, so that others receive the message too.
    LeaseCut,
    /// A message is there twice.
    MessageTwice,
    /// A message is seen only much later.
    MessageLate,
    /// Messages come in another order.
    Reordered,
    /// An old receipt was used, and refused.
    StaleReceipt,
    /// A ring does not arrive.
    RingLost,
    /// A ring for nothing.
    RingSpurious,
    /// A reply to whoever waits does not arrive.
    ReplyLost,
    /// The client does not hear the answer.
    ResponseLost,
    /// The client's request arrives a second time, somewhere.
    RequestTwice,
    /// The gate is held for some time.
    GateHeld,
    /// An adversary puts a message of its own on a queue.
    MessageForged,
    /// An adversary receives messages, and changes, deletes or hides them.
    MessageTaken,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 24] = [
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
    ];

    /// Its name, for people and for commands.
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
        }
    }

    /// The fault of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// How often it may happen at most, of a thousand occasions.
    const fn permille_max(self) -> u32 {
        match self {
            // Between any two steps.
            Self::Crash => 4,
            Self::Pause => 2,
            Self::Drain | Self::SlowStore | Self::Outage | Self::GateHeld | Self::RingSpurious => 1,
            // For each life.
            Self::ClockSkew => 700,
            // For each request, message or ring.
            Self::AnswerLost | Self::RequestLost | Self::Throttled => 120,
            Self::WriteLate | Self::WriteTwice | Self::LeaseCut | Self::MessageTwice => 150,
            Self::MessageLate => 200,
            Self::Reordered => 500,
            Self::RingLost | Self::ReplyLost => 600,
            Self::ResponseLost | Self::RequestTwice => 300,
            // At each turn of the adversary.
            Self::MessageForged | Self::MessageTaken => 800,
            // It follows from others.
            Self::StaleReceipt => 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each fault happens in one run: a run that has few kinds of them finds other mistakes than
/// one that has all.
#[derive(Debug, Clone, Default)]
pub struct FaultMix {
    permille: BTreeMap<Fault, u32>,
}

impl FaultMix {
    /// A mix drawn by the seed; those in `without` never happen.
    pub fn draw(scheduler: &Scheduler, without: &[Fault]) -> Self {
        let mut permille = BTreeMap::new();
        for fault in Fault::ALL {
            // Drawn for every kind, so that leaving one out changes none of the others.
            let (is_on, part) = (scheduler.below(100) < 60, scheduler.below(1000));
            let max = u64::from(fault.permille_max());
            let drawn = max.saturating_mul(part).div_ceil(1000);
            if is_on && !without.contains(&fault) {
                permille.insert(fault, u32::try_from(drawn).unwrap_or(0));
            }
        }
        Self { permille }
    }

    /// Of a thousand occasions, how many it takes.
    pub fn permille(&self, fault: Fault) -> u32 {
        self.permille.get(&fault).copied().unwrap_or(0)
    }
}

/// How often each fault happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    /// One more.
    pub fn add(&mut self, fault: Fault) {
        let count = self.0.entry(fault).or_default();
        *count = count.saturating_add(1);
    }

    /// Those of another run as well.
    pub fn merge(&mut self, other: &Self) {
        for (fault, count) in &other.0 {
            let sum = self.0.entry(*fault).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// How often that one happened.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// How long a fault lasts that takes its time.
pub fn length(fault: Fault, scheduler: &Scheduler) -> Duration {
    let seconds_max = match fault {
        Fault::Pause | Fault::SlowStore => 40,
        Fault::GateHeld => 60,
        Fault::WriteLate | Fault::MessageLate | Fault::MessageTaken => 90,
        // Now and then longer than a visibility timeout times the maximum of receipts.
        Fault::Outage => 150,
        Fault::Crash
        | Fault::Drain
        | Fault::ClockSkew
        | Fault::AnswerLost
        | Fault::RequestLost
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
        | Fault::MessageForged => 0,
    };
    scheduler.up_to(Duration::from_secs(seconds_max))
}
