//! The state of the model: the store, the queue, the network, and the memory of each process.
//!
//! All parts are small and canonical, so that two histories with the same result give the same state.
//! Messages and requests are sorted. A nonce is stored as the worker that still knows it, or as nothing,
//! since no other process compares it.

/// Number of transactions: the deposit, and the withdrawal that only the deposit can pay.
pub const KEYS: usize = 2;
/// The deposit.
pub const DEPOSIT: usize = 0;
/// The withdrawal.
pub const WITHDRAWAL: usize = 1;
/// Number of web processes, and of workers.
pub const PROCESSES: usize = 2;
/// Number of different requests: the deposit, the withdrawal, and the id of the deposit with other content.
pub const REQUESTS: usize = 3;

/// The status of a transaction's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It is not final.
    Accepted,
    /// It is in the journal.
    Posted,
    /// It was rejected for insufficient funds.
    Rejected,
}

/// A row of the transaction log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// The accepted content: 0, or 1 for the other content of the same id.
    pub content: u8,
    /// Increases with each change.
    pub revision: u8,
    /// Its status.
    pub status: Status,
    /// The process that still knows the nonce of the deciding commit.
    pub decided_by: Option<Owner>,
}

/// A process that knows the nonce of a commit under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A worker; it has one commit at a time.
    Worker(usize),
    /// A web process; it has one commit at a time.
    Web(usize),
}

/// The account's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// The balance.
    pub balance: i8,
    /// Increases with each commit.
    pub version: u8,
}

/// The work in a message: for each transaction the revision of its row, or nothing.
pub type Items = [Option<u8>; KEYS];

/// The state of a message's receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lease {
    /// Any worker may receive the message, and no receipt is valid.
    Free,
    /// Any worker may receive the message; until then a late delete under the newest receipt may arrive.
    LateDelete,
    /// The message is hidden; the worker has the newest receipt.
    Held(usize),
    /// Any worker may receive the message; until then the worker still has the newest receipt.
    Expired(usize),
}

impl Lease {
    /// The worker with the newest receipt.
    pub const fn holder(self) -> Option<usize> {
        match self {
            Self::Held(worker) | Self::Expired(worker) => Some(worker),
            Self::Free | Self::LateDelete => None,
        }
    }

    /// Whether the message can be received.
    pub const fn is_visible(self) -> bool {
        !matches!(self, Self::Held(_))
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

/// The finalization of one transaction by a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finalization {
    /// The transaction.
    pub key: usize,
    /// The revision that the row must have.
    pub revision: u8,
    /// The final status.
    pub status: Status,
}

/// The insertion of a transaction that is final from its first write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Insertion {
    /// The transaction.
    pub key: usize,
    /// Its content.
    pub content: u8,
    /// Its status.
    pub status: Status,
}

/// One atomic change of the account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit {
    /// The version that the account must have.
    pub guard: u8,
    /// The balance afterwards.
    pub balance: i8,
    /// The transactions that become final.
    pub finalizations: Vec<Finalization>,
    /// The transaction that is posted or rejected at once.
    pub insertion: Option<Insertion>,
}

/// A request that may still arrive after its sender gave up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Late {
    /// An insert.
    Insert {
        /// The transaction.
        key: usize,
        /// The content.
        content: u8,
    },
    /// A send.
    Send(Items),
    /// A commit, and the process that still knows its nonce.
    Commit(Commit, Option<Owner>),
}

/// A request of a client within a web process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// No request.
    Idle,
    /// The request waits for its outcome, and is to be posted at once if possible.
    Waiting(Request),
    /// The row is to be inserted.
    Inserting(u8),
    /// The work is to be sent to the queue.
    Sending {
        /// The content of the client.
        content: u8,
        /// The revision of the row.
        revision: u8,
    },
}

/// A request that waits for its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Its content.
    pub content: u8,
    /// Whether this process had acknowledged the other transaction before.
    pub is_later: bool,
}

/// A commit of a web process that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The transaction.
    pub key: usize,
    /// The request.
    pub request: Request,
    /// The account as it was read.
    pub account: Account,
    /// The next action.
    pub stage: AttemptStage,
}

/// The next action of a commit of a web process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptStage {
    /// Commits; `unclear` when an earlier attempt of the same commit had no answer.
    Committing {
        /// Whether the same commit was sent before.
        unclear: bool,
    },
    /// Reads whether its commit was written; `refused` when the guards have refused it since.
    ReadingBack {
        /// Whether the commit was refused, so that it can no longer be written.
        refused: bool,
    },
}

/// The gate, as a web process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KnownGate {
    /// It is released.
    Released,
    /// It is held.
    Held,
    /// It is held, and the process acknowledged that.
    Acknowledged,
}

/// A web process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Web {
    /// The requests, one for each id.
    pub slots: [Slot; KEYS],
    /// The transactions whose send was confirmed.
    pub confirmed: [bool; KEYS],
    /// The commit that is under way.
    pub attempt: Option<Attempt>,
    /// The gate.
    pub gate: KnownGate,
}

/// One item of a worker's round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work {
    /// The transaction.
    pub key: usize,
    /// The revision that the row had.
    pub revision: u8,
}

/// The next action of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Receives messages.
    Idle,
    /// Reads the account.
    Loading,
    /// Commits; `unclear` when an earlier attempt of the same commit had no answer.
    Committing {
        /// Whether the same commit was sent before.
        unclear: bool,
    },
    /// Reads whether its commit was written; `refused` when the guards have refused it since.
    ReadingBack {
        /// Whether the commit was refused, so that it can no longer be written.
        refused: bool,
    },
    /// Reads the row of the work item at that position.
    Reloading(usize),
    /// Deletes messages whose work is final, and releases the others.
    Settling,
}

/// A worker process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker {
    /// The next action.
    pub stage: Stage,
    /// The account as it was last read.
    pub cache: Option<Account>,
    /// The work that is not final, in order.
    pub work: Vec<Work>,
    /// The transactions of this round that the worker knows to be final.
    pub settled: [bool; KEYS],
}

/// How many faults and requests may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    /// Requests of clients, by kind.
    pub submits: [u8; REQUESTS],
    /// Lost answers, lost requests and late requests.
    pub losses: u8,
    /// Crashes.
    pub crashes: u8,
    /// Leases that end while their holder works.
    pub expiries: u8,
    /// Accepted work that repair sends again, which changes the revision of its row.
    pub repairs: u8,
    /// Requests that wait for their outcome.
    pub waits: u8,
    /// Whether the gate is held at some time. It applies to web processes only: what workers receive later changes
    /// nothing.
    pub holds: u8,
    /// The balance at the start.
    pub funds: i8,
}

/// Wrong steps that cannot be seen in the rest of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Violations {
    /// A final row was written again.
    pub final_changed: bool,
    /// A client was acknowledged content that differs from the log.
    pub other_content: bool,
    /// A rejection was recorded although the account could pay.
    pub refused_payable: bool,
    /// A process announced another outcome than the recorded one.
    pub wrong_announcement: bool,
    /// A transaction was posted at once before an accepted one that it had to follow.
    pub order_broken: bool,
    /// A transaction was rejected at once although an accepted one may pay it.
    pub refused_early: bool,
    /// A process posted at once after it had acknowledged the held gate.
    pub gate_ignored: bool,
    /// A fault-free step did not lower the rank.
    pub no_progress: bool,
}

/// The state of the whole system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The transaction log.
    pub rows: [Option<Row>; KEYS],
    /// The account.
    pub account: Account,
    /// Number of journal entries of each transaction.
    pub entries: [u8; KEYS],
    /// The sum of the entries.
    pub entries_sum: i8,
    /// The queue, sorted, since it is unordered.
    pub queue: Vec<Message>,
    /// Requests that may still arrive after their senders gave up, sorted.
    pub late: Vec<Late>,
    /// The web processes.
    pub webs: [Web; PROCESSES],
    /// The workers.
    pub workers: [Worker; PROCESSES],
    /// Whether the gate is held.
    pub gate_held: bool,
    /// The transactions that were acknowledged.
    pub acknowledged: [bool; KEYS],
    /// The faults and requests that may still happen.
    pub budget: Budget,
    /// The wrong steps so far.
    pub violations: Violations,
}

impl Web {
    /// A process after its start.
    pub const NEW: Self = Self {
        slots: [Slot::Idle; KEYS],
        confirmed: [false; KEYS],
        attempt: None,
        gate: KnownGate::Released,
    };
}

impl Worker {
    /// A process after its start.
    pub const fn new() -> Self {
        Self { stage: Stage::Idle, cache: None, work: Vec::new(), settled: [false; KEYS] }
    }
}

impl State {
    /// An open account, and idle processes.
    pub fn new(budget: Budget) -> Self {
        Self {
            rows: [None; KEYS],
            account: Account { balance: budget.funds, version: 0 },
            entries: [0; KEYS],
            entries_sum: budget.funds,
            queue: Vec::new(),
            late: Vec::new(),
            webs: [Web::NEW; PROCESSES],
            workers: [Worker::new(), Worker::new()],
            gate_held: false,
            acknowledged: [false; KEYS],
            budget,
            violations: Violations::default(),
        }
    }

    /// Whether the transaction is final.
    pub fn is_final(&self, key: usize) -> bool {
        self.rows[key].is_some_and(|row| row.status != Status::Accepted)
    }

    /// Whether the transaction is in the log and not final.
    pub fn is_accepted(&self, key: usize) -> bool {
        self.rows[key].is_some_and(|row| row.status == Status::Accepted)
    }

    /// Forgets the nonce of the last commit of a process.
    pub(super) fn forget_nonce(&mut self, of: Owner) {
        self.change_owners(|owner| (owner != of).then_some(owner));
    }
}
