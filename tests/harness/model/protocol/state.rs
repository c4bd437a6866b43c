//! What the model remembers: the store, the queue, the network, and what each process has in memory.
//!
//! Everything is small and canonical, so that two histories that leave the same world give the same
//! state: messages and requests are sorted, and a nonce is "the one that worker has in hand" or
//! nothing, since nobody compares it with anything else.

use std::cmp::Ordering;

use stateright::Representative;

/// Transactions: the deposit and the withdrawal that only the deposit can pay.
pub const KEYS: usize = 2;
/// The deposit.
pub const DEPOSIT: usize = 0;
/// The withdrawal.
pub const WITHDRAWAL: usize = 1;
/// Web processes, and workers as well.
pub const PROCESSES: usize = 2;
/// What clients ask for: the deposit, the withdrawal, and the id of the deposit with other content.
pub const REQUESTS: usize = 3;

/// The status of a transaction's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It waits.
    Accepted,
    /// It is in the journal.
    Posted,
    /// It was refused for want of funds.
    Rejected,
}

/// A row of the transaction log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// Which content was accepted: 0, or 1 for the other content of the same id.
    pub content: u8,
    /// Grows with each change.
    pub revision: u8,
    /// Its status.
    pub status: Status,
    /// The worker that has the nonce of the deciding commit still in hand.
    pub decided_by: Option<usize>,
}

/// The account's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// What is on it.
    pub balance: i8,
    /// Grows with each commit.
    pub version: u8,
}

/// The work in a message: for each transaction the revision of its row, or nothing.
pub type Items = [Option<u8>; KEYS];

/// Who may do what with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lease {
    /// Anybody may receive it, and no receipt for it counts any more.
    Free,
    /// Anybody may receive it; until then a delete under the newest receipt is still on its way.
    DeleteUnderWay,
    /// It is hidden; the worker has the newest receipt.
    Held(usize),
    /// Anybody may receive it; until then the worker still has the newest receipt.
    Expired(usize),
}

impl Lease {
    /// The worker with the newest receipt.
    pub const fn holder(self) -> Option<usize> {
        match self {
            Self::Held(worker) | Self::Expired(worker) => Some(worker),
            Self::Free | Self::DeleteUnderWay => None,
        }
    }

    /// Whether the message can be received.
    pub const fn is_visible(self) -> bool {
        !matches!(self, Self::Held(_))
    }

    fn renamed(self) -> Self {
        match self {
            Self::Held(worker) => Self::Held(other(worker)),
            Self::Expired(worker) => Self::Expired(other(worker)),
            Self::Free | Self::DeleteUnderWay => self,
        }
    }
}

/// A message on the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// Its work.
    pub items: Items,
    /// The state of its receipts.
    pub lease: Lease,
}

/// One transaction that a commit makes final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finalization {
    /// Which.
    pub key: usize,
    /// The revision that its row must have.
    pub revision: u8,
    /// What becomes of it.
    pub status: Status,
}

/// One atomic change of the account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit {
    /// The version that the account must have.
    pub guard: u8,
    /// The balance afterwards.
    pub balance: i8,
    /// What becomes final.
    pub finalizations: Vec<Finalization>,
}

/// A request whose sender has given up waiting, and that may still arrive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Late {
    /// An insert.
    Insert {
        /// Which transaction.
        key: usize,
        /// With which content.
        content: u8,
    },
    /// A send.
    Send(Items),
    /// A commit, and the worker that still has its nonce in hand.
    Commit(Commit, Option<usize>),
}

/// A request of a client inside a web process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// None.
    Idle,
    /// About to be written to the log.
    Inserting(u8),
    /// About to be sent to the queue.
    Sending {
        /// The client's content.
        content: u8,
        /// The revision of the row.
        revision: u8,
    },
}

/// A web process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Web {
    /// Its requests, one for each id.
    pub slots: [Slot; KEYS],
    /// The work whose send it has seen confirmed.
    pub confirmed: [bool; KEYS],
}

/// A piece of work in the hands of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work {
    /// Which transaction.
    pub key: usize,
    /// The revision that its row had.
    pub revision: u8,
}

/// What a worker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It receives.
    Idle,
    /// It reads the account.
    Loading,
    /// It commits; `unclear` when an earlier attempt of the same commit has had no answer.
    Committing {
        /// Whether the same commit was sent before.
        unclear: bool,
    },
    /// It looks whether its commit was written; `refused` when the guards have refused it meanwhile.
    ReadingBack {
        /// Whether it can still be written.
        refused: bool,
    },
    /// It reads the row of the work in that place.
    Reloading(usize),
    /// It deletes the messages whose work is final, and gives back the others.
    Settling,
}

/// A worker process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker {
    /// What it does.
    pub stage: Stage,
    /// The account as it last saw it.
    pub cache: Option<Account>,
    /// What is not final yet, in order.
    pub work: Vec<Work>,
    /// What it knows to be final, of this round.
    pub settled: [bool; KEYS],
}

/// How much may still go wrong, and how often clients may still ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    /// Requests of clients, by what they ask for.
    pub submits: [u8; REQUESTS],
    /// Answers lost, requests lost, requests that arrive late.
    pub losses: u8,
    /// Crashes.
    pub crashes: u8,
    /// Leases that end while their holder is at work.
    pub expiries: u8,
    /// Accepted work that repair sends again, which changes the revision of its row.
    pub repairs: u8,
}

/// Wrong steps that the state alone would not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Flaws {
    /// A final row was written again.
    pub final_changed: bool,
    /// A client was promised other content than the log has.
    pub other_content: bool,
    /// A rejection was recorded although the account could pay.
    pub refused_payable: bool,
    /// A worker told another outcome than the recorded one.
    pub told_wrong: bool,
    /// A step without a fault did not lead nearer to rest.
    pub no_progress: bool,
}

/// The world.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The transaction log.
    pub rows: [Option<Row>; KEYS],
    /// The account.
    pub account: Account,
    /// Entries of the journal, by transaction.
    pub entries: [u8; KEYS],
    /// The sum of the entries.
    pub entries_sum: i8,
    /// The queue, sorted: it keeps no order.
    pub queue: Vec<Message>,
    /// Requests without an answer that may still arrive, sorted.
    pub late: Vec<Late>,
    /// The web processes.
    pub webs: [Web; PROCESSES],
    /// The workers.
    pub workers: [Worker; PROCESSES],
    /// What was answered with 202, or with its final status.
    pub acknowledged: [bool; KEYS],
    /// What may still happen.
    pub budget: Budget,
    /// What went wrong.
    pub flaws: Flaws,
}

impl Web {
    /// A process that has just started.
    pub const NEW: Self = Self { slots: [Slot::Idle; KEYS], confirmed: [false; KEYS] };
}

impl Worker {
    /// A process that has just started.
    pub const fn new() -> Self {
        Self { stage: Stage::Idle, cache: None, work: Vec::new(), settled: [false; KEYS] }
    }
}

impl State {
    /// An open account without money, and nobody at work.
    pub fn new(budget: Budget) -> Self {
        Self {
            rows: [None; KEYS],
            account: Account { balance: 0, version: 0 },
            entries: [0; KEYS],
            entries_sum: 0,
            queue: Vec::new(),
            late: Vec::new(),
            webs: [Web::NEW; PROCESSES],
            workers: [Worker::new(), Worker::new()],
            acknowledged: [false; KEYS],
            budget,
            flaws: Flaws::default(),
        }
    }

    /// Whether a transaction is final.
    pub fn is_final(&self, key: usize) -> bool {
        self.rows[key].is_some_and(|row| row.status != Status::Accepted)
    }

    fn with_workers_swapped(mut self) -> Self {
        self.workers.swap(0, 1);
        for message in &mut self.queue {
            message.lease = message.lease.renamed();
        }
        for row in self.rows.iter_mut().flatten() {
            row.decided_by = row.decided_by.map(other);
        }
        for late in &mut self.late {
            if let Late::Commit(_, owner) = late {
                *owner = owner.map(other);
            }
        }
        self.queue.sort_unstable();
        self.late.sort_unstable();
        self
    }
}

const fn other(worker: usize) -> usize {
    1_usize.saturating_sub(worker)
}

/// Web processes are interchangeable, and so are workers.
impl Representative for State {
    fn representative(&self) -> Self {
        let mut state = self.clone();
        state.webs.sort_unstable();
        let [one, two] = &state.workers;
        match one.cmp(two) {
            Ordering::Less => state,
            Ordering::Greater => state.with_workers_swapped(),
            // They can still be told apart by what is held for them.
            Ordering::Equal => state.clone().with_workers_swapped().min(state),
        }
    }
}
