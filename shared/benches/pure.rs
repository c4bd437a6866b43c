//! Pure functions that show up in a profile of a busy bank, each by itself: `cargo bench -p postonce-benches`.
//!
//! They compare two versions on one machine. The benchmark of the `tests` crate measures the bank as a
//! whole.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use postonce_shared::adapters::page_body;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::domain::account::{Account, Revision, Versioned};
use postonce_shared::domain::decision::{DecisionContext, Submission, Work, decide};
use postonce_shared::domain::ids::{
    AccountId, AccountKey, MessageId, Nonce, OrderNumber, PartnerId, TransactionKey, UserId,
};
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::domain::journal::PAGE_ENTRIES_MAX;
use postonce_shared::domain::money::{Amount, Currency, OverdraftLimit};
use postonce_shared::domain::origin::Origin;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::envelope::seal::{Purpose, Seal};
use postonce_shared::messaging::envelope::{Body, Envelope};
use postonce_shared::testing::pending::pending;
use postonce_shared::testing::sealed::seal;
use uuid::Uuid;

/// Items of an envelope under load.
const ITEMS: u128 = 40;

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_795_248_000_123)
}

fn euro() -> Currency {
    Currency::parse("EUR").expect("a currency")
}

fn account() -> Versioned<Account> {
    let key = AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    };
    let limit = OverdraftLimit::try_new(0, euro()).expect("a limit");
    Versioned { value: Account::open(key, euro(), limit, None, now()), revision: Revision::new("1") }
}

fn work(count: u128) -> Vec<Work> {
    let partner = PartnerId::parse("shop").expect("a name of a partner");
    let work = |id| Work {
        submission: Submission {
            key: TransactionKey {
                account: account().value.key,
                partner: partner.clone(),
                message: MessageId::from_uuid(Uuid::from_u128(id)),
            },
            instruction: Instruction {
                kind: TransactionKind::Deposit,
                amount: Amount::parse("12.50", euro()).expect("an amount"),
                details: Details::default(),
            },
            accepted_at: now(),
            origin: Origin::default(),
            batch_line: None,
        },
        row: Revision::new("1"),
        delivered: None,
    };
    (0..count).map(work).collect()
}

fn envelopes(criterion: &mut Criterion) {
    let (bank, none) = (seal(), Seal::new(&DoorbellSecret::new(None)));
    for count in [1, ITEMS] {
        let envelope = Envelope::of(work(count));
        let (sealed, unsealed) = (envelope.encode(&bank), envelope.encode(&none));
        let mut bench = |name: &str, run: &dyn Fn()| {
            criterion.bench_function(&format!("{name} an envelope of {count}"), |it| it.iter(run));
        };
        bench("encode", &|| drop(black_box(black_box(&envelope).encode(&bank))));
        bench("encode without a seal", &|| drop(black_box(black_box(&envelope).encode(&none))));
        bench("decode", &|| drop(black_box(Body::decode(black_box(&sealed), &bank))));
        bench("decode the names of", &|| drop(black_box(Body::decode(black_box(&unsealed), &bank))));
        bench("verify the seal of", &|| {
            black_box(bank.verify(Purpose::Message, black_box(&sealed)));
        });
    }
}

fn decisions(criterion: &mut Criterion) {
    let account = account();
    let numbers: Vec<OrderNumber> = (1..=100).map(OrderNumber::from_counter).collect();
    let context =
        DecisionContext { nonce: Nonce::from_uuid(Uuid::from_u128(9)), now: now(), numbers: &numbers };
    let full = u128::try_from(PAGE_ENTRIES_MAX).expect("a small number");
    for count in [1, full] {
        let pending = pending(&work(count), &[]);
        let name = format!("decide and seal {count} of one account");
        let decide = || decide(black_box(&account), pending.clone(), &context);
        criterion.bench_function(&name, |it| it.iter(decide));
    }
    let page = decide(&account, pending(&work(full), &[]), &context).page;
    criterion.bench_function("encode a full page", |it| {
        it.iter(|| page_body::encode(black_box(&page)));
    });
    criterion.bench_function("check a full page", |it| it.iter(|| black_box(&page).check()));
}

fn fingerprints(criterion: &mut Criterion) {
    let instruction = work(1).remove(0).submission.instruction;
    criterion.bench_function("compute a fingerprint", |it| {
        it.iter_batched(
            || instruction.clone(),
            |instruction| instruction.fingerprint(),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(pure, envelopes, decisions, fingerprints);
criterion_main!(pure);
