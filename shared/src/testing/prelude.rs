//! The names that most tests use: ids and amounts, the ports and their types, the memory store, and sealed bodies.

pub use crate::access::partner_records::PartnerRecords;
pub use crate::adapters::azure::{AzureConfig, AzureConnection};
pub use crate::adapters::local_doorbell::LocalDoorbell;
pub use crate::adapters::memory::MemoryStore;
pub use crate::adapters::memory::world::TestWorld;
pub use crate::adapters::sqlite::SqliteStore;
pub use crate::adapters::system::SystemWorld;
pub use crate::bank::{Bank, BankSettings, Links};
pub use crate::batches::items::ResultLine;
pub use crate::cluster::completions::{Completion, Completions};
pub use crate::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
pub use crate::cluster::gate::change::{GateAct, GateRecord};
pub use crate::cluster::gate::{Gate, GateState, GateValue};
pub use crate::domain::account::{Account, AccountStatus, Holder, Revision, Versioned};
pub use crate::domain::anchor::Leaf;
pub use crate::domain::anchor::signed::AnchorKey;
pub use crate::domain::batch::{
    Batch, BatchKey, Item, ItemOutcome, ItemResult, ItemStatus, OnInvalid, OperationCounts, Phase,
};
pub use crate::domain::decision::{
    AccountCommit, AccountDecision, DecisionContext, NewTerms, TermsContext, UnknownAccountCommit, Work,
    change_terms, decide,
};
pub use crate::domain::ids::{
    AccountId, AccountKey, BatchId, MessageId, Nonce, OrderNumber, PartnerId, TransactionKey, UserId,
};
pub use crate::domain::instruction::{Details, Instruction, TransactionKind, UnknownMembers};
pub use crate::domain::journal::{Decided, Entry, JournalPage, PAGE_ENTRIES_MAX, PageHash, Rejection};
pub use crate::domain::money::{
    AMOUNT_MINOR_UNITS_MAX, Amount, BALANCE_MINOR_UNITS_MAX, Balance, Currency, OverdraftLimit,
};
pub use crate::domain::origin::{Origin, RequestId, TraceParent};
pub use crate::domain::partner::{
    ActiveKey, Partner, PartnerStatus, Reach, SignatureAlgorithm, SignatureKey,
};
pub use crate::domain::rejection::RejectReason;
pub use crate::domain::scope::Scope;
pub use crate::domain::time::Timestamp;
pub use crate::domain::transaction::{BatchLine, Outcome, TransactionStatus};
pub use crate::messaging::claim_check::ClaimCheck;
pub use crate::messaging::envelope::claim::PAYLOADS;
pub use crate::messaging::envelope::seal::{Purpose, Seal};
pub use crate::messaging::envelope::{Body, Claim, Content, Envelope, Names};
pub use crate::ports::Store;
pub use crate::ports::api_keys::ApiKeyRecord;
pub use crate::ports::archive::{
    Damaged, Readable, RowContent, StoredDecisionPage, StoredPage, StoredRow, UserRange,
};
pub use crate::ports::dead_letters::{DeadLetter, DeadLetters, Resolution, ResolutionKind};
pub use crate::ports::doorbell::Doorbell;
pub use crate::ports::fault::StoreFault;
pub use crate::ports::ledger::{
    AcceptGrouping, AcceptOutcome, Accounts, Committed, JointSteps, Ledger, Listing, Marks, Opened,
    StoredTransaction, TransactionLog,
};
pub use crate::ports::payload_store::{PayloadEntry, PayloadStore};
pub use crate::ports::process_registry::{Address, LEVEL, ProcessId, ProcessKind, RegisteredProcess};
pub use crate::ports::queue::{
    BODY_BYTES_MAX, Backlog, Held, Lease, Message, QueueName, RECEIVE_MAX, WorkQueue,
};
pub use crate::ports::records::{Collection, Record, Records};
pub use crate::ports::sync_store::{Swapped, SyncStore};
pub use crate::ports::world::{World, WorldExt};
pub use crate::posting::order_numbers::{FIRST_COUNTER, OrderNumbers, REGISTER, Register};
pub use crate::protocol::accept::{AcceptFault, Acceptance, Accepted};
pub use crate::testing::decorators::{
    ArchiveDecorator, LedgerDecorator, RecordsDecorator, SyncStoreDecorator, WorkQueueDecorator,
};
pub use crate::testing::faults::{self, Control, Effect, lose, lose_answers};
pub use crate::testing::pending::pending;
pub use crate::testing::registered::{count_as_draining, count_as_registered, count_as_released};
pub use crate::testing::sealed::{envelope_in, held_in, resealed, seal, seal_of, unsealed};
pub use crate::testing::{change_of_terms, opening};
