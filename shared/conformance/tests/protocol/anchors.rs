//! Anchors that rounds of the scrubber make.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use postonce_shared::domain::anchor::signed::{AnchorKey, SignedAnchor};
use postonce_shared::oversight::anchors::{
    AnchorFolder, AnchorLog, AnchorSigner, LISTS_KEPT, LeafLists, ListProgress, PART_LEAVES_MAX, StoredAnchor,
};
use postonce_shared::oversight::scrubber::{Anchoring, Scrubber, ScrubberTerms};
use postonce_shared::testing::changed_accounts::ChangedAccounts;
use postonce_shared::testing::prelude::*;

use crate::protocol::fixture::{account, deposit, submit};
use crate::protocol::scrubber::{DAY, HOUR, MANY, MINUTE, Process, Setup};

fn key() -> AnchorKey {
    AnchorKey::from_seed([1; 32])
}

struct Anchored {
    setup: Setup,
}

impl Anchored {
    async fn new() -> Self {
        Self { setup: Setup::new().await }
    }

    fn store(&self) -> Store {
        self.setup.fixture.store.ports()
    }

    fn world(&self) -> Arc<dyn World> {
        self.setup.world.clone()
    }

    async fn process(&self, operations_per_day: u32) -> Process {
        let mut process = self.setup.process(operations_per_day, None).await;
        self.give_key(&mut process);
        process
    }

    fn give_key(&self, process: &mut Process) {
        let signer = AnchorSigner::new(&process.bank.store, &self.world(), key());
        process.scrubber.make_anchors(Anchoring { signer, folder: None });
    }

    /// Opens accounts, and returns all.
    async fn open(&self, count: usize) -> BTreeSet<AccountKey> {
        let (store, world) = (self.store(), self.world());
        let euro = Currency::parse("EUR").unwrap();
        let mut keys = BTreeSet::from([account()]);
        for _ in 0..count {
            let (user, id) = (UserId::from_uuid(world.uuid()), AccountId::from_uuid(world.uuid()));
            let key = AccountKey { user, account: id };
            let opened = Account::open(key, euro, OverdraftLimit::none(euro), None, world.now());
            drop(store.accounts.open(&opening(opened)).await.unwrap());
            keys.insert(key);
        }
        keys
    }

    async fn anchors(&self) -> Vec<StoredAnchor> {
        let mut anchors = AnchorLog::new(&self.store(), &self.world()).list(None, 100).await.unwrap();
        anchors.reverse();
        anchors
    }

    /// The leaves of an anchor, whose list must be the one that was signed.
    async fn leaves(&self, anchor: &StoredAnchor) -> Vec<Leaf> {
        let lists = LeafLists::new(&self.store(), &self.world());
        let (mut reader, mut leaves) = (lists.read(&anchor.list, anchor.statement.leaves.parts), Vec::new());
        while let Some(part) = reader.next_part().await.unwrap() {
            assert!(!part.is_empty() && part.len() <= PART_LEAVES_MAX);
            leaves.extend(part);
        }
        assert_eq!(reader.statement(), anchor.statement.leaves);
        leaves
    }

    async fn parts(&self) -> Vec<String> {
        let listed = self.store().records.list(Collection::AnchorLeaves, "", None, 1000).await.unwrap();
        listed.into_iter().map(|part| part.id).collect()
    }

    async fn withdraw(&self, process: Process) {
        process.bank.store.process_registry.withdraw(process.entry.id).await.unwrap();
    }
}

#[tokio::test]
async fn an_anchor_is_made_once_a_day() {
    let it = Anchored::new().await;
    let mut process = it.process(MANY).await;
    it.setup.scrub(&mut process, 5 * HOUR).await;
    let [first] = it.anchors().await.try_into().unwrap();
    assert!(first.signed.is_signed_by(&[key().public()]));
    let state = it.setup.fixture.account().await;
    assert_eq!(it.leaves(&first).await, [Leaf::of(&state)]);
    // The next one contains what was decided meanwhile.
    let _ = submit(&process.bank, 7, deposit("1.00")).await.unwrap();
    let work = it.setup.fixture.receive().await;
    assert!(process.bank.poster.post(account(), work).await[0].1.is_ok());
    it.setup.scrub(&mut process, DAY).await;
    let [_, second] = it.anchors().await.try_into().unwrap();
    assert_eq!((second.statement.sequence, second.statement.previous), (2, first.signed.hash()));
    assert!(second.statement.made_at.since(first.statement.made_at) >= DAY);
    let leaves = it.leaves(&second).await;
    assert_eq!(leaves, [Leaf::of(&it.setup.fixture.account().await)]);
    assert!(leaves[0].version > state.version);
    // Anchors are kept, and the last lists.
    it.setup.scrub(&mut process, 8 * DAY).await;
    let anchors = it.anchors().await;
    assert!((9..=11).contains(&anchors.len()), "{}", anchors.len());
    let lists: BTreeSet<&str> =
        anchors[anchors.len() - LISTS_KEPT..].iter().map(|it| it.list.as_str()).collect();
    let parts = it.parts().await;
    assert_eq!(parts.len(), LISTS_KEPT);
    assert!(parts.iter().all(|part| lists.iter().any(|list| part.starts_with(list))), "{parts:?}");
    let report = it.setup.report().await;
    assert_eq!(report.findings, []);
}

#[tokio::test]
async fn a_long_list_has_several_parts_and_costs_operations() {
    let it = Anchored::new().await;
    let mut process = it.process(MANY).await;
    let accounts = it.open(4_500).await;
    it.setup.scrub(&mut process, 30 * MINUTE).await;
    let [anchor] = it.anchors().await.try_into().unwrap();
    assert_eq!((anchor.statement.leaves.count, anchor.statement.leaves.parts), (4_501, 2));
    let leaves = it.leaves(&anchor).await;
    assert!(leaves.iter().map(|leaf| leaf.account).eq(accounts));
    let round = it.setup.report().await.last_round.unwrap();
    // Ten reads of rows and five of names, and for the anchor: 2 reads of the last one, 2 parts written and read, the audit
    // trail, the anchor, and the lists that are kept.
    assert!((23..=29).contains(&round.operations), "{}", round.operations);
}

#[tokio::test]
async fn another_process_continues_a_list_in_the_middle() {
    for minutes in [15, 25, 35, 45, 55, 65, 75, 85] {
        let it = Anchored::new().await;
        it.setup.fill(2_300).await;
        let accounts = it.open(1_900).await;
        // An operation in ten minutes.
        let mut first = it.process(6 * 24).await;
        it.setup.scrub(&mut first, minutes * MINUTE).await;
        assert!(it.setup.report().await.last_round.is_none());
        it.withdraw(first).await;
        let mut second = it.process(MANY).await;
        it.setup.scrub(&mut second, 10 * MINUTE).await;
        let [anchor] = it.anchors().await.try_into().unwrap_or_else(|it| panic!("{minutes} minutes: {it:?}"));
        let leaves = it.leaves(&anchor).await;
        assert!(leaves.iter().map(|leaf| leaf.account).eq(accounts), "{minutes} minutes");
        assert!(minutes < 35 || anchor.statement.leaves.parts > 1, "{minutes}: both processes wrote parts");
    }
}

#[tokio::test]
async fn a_process_without_the_key_ends_the_list_of_a_round() {
    let it = Anchored::new().await;
    it.open(4_500).await;
    let mut first = it.process(6 * 24).await;
    it.setup.scrub(&mut first, 20 * MINUTE).await;
    it.withdraw(first).await;
    let mut without = it.setup.process(6 * 24, None).await;
    it.setup.scrub(&mut without, 25 * MINUTE).await;
    it.withdraw(without).await;
    let mut third = it.process(MANY).await;
    it.setup.scrub(&mut third, 5 * MINUTE).await;
    assert!(it.setup.report().await.last_round.is_some());
    assert_eq!(it.anchors().await, [], "the list lacks accounts");
    it.setup.scrub(&mut third, 2 * HOUR).await;
    let [anchor] = it.anchors().await.try_into().unwrap();
    assert_eq!(anchor.statement.leaves.count, 4_501);
}

#[tokio::test]
async fn a_late_write_of_another_process_is_detected() {
    let it = Anchored::new().await;
    it.open(2_500).await;
    let mut process = it.process(6 * 24).await;
    it.setup.scrub(&mut process, 35 * MINUTE).await;
    let written = it.parts().await;
    let list = written[0].rsplit_once('-').unwrap().0.to_owned();
    // A process that scrubbed before writes the first part with less leaves.
    let lists = LeafLists::new(&it.store(), &it.world());
    let leaves = lists.read_part(&list, 0).await.unwrap();
    let mut late = ListProgress { id: list, ..ListProgress::begin(0, it.world().now(), it.world().nonce()) };
    lists.append_part(&mut late, &leaves[1..]).await.unwrap();
    it.withdraw(process).await;
    let mut second = it.process(MANY).await;
    it.setup.scrub(&mut second, 10 * MINUTE).await;
    let report = it.setup.report().await;
    assert!(report.last_round.is_some());
    assert_eq!((it.anchors().await, report.findings), (Vec::new(), Vec::new()));
    it.setup.scrub(&mut second, 2 * HOUR).await;
    let [anchor] = it.anchors().await.try_into().unwrap();
    assert_eq!(it.leaves(&anchor).await.len(), 2_501);
}

#[tokio::test]
async fn a_contradiction_to_the_last_anchor_is_found_and_not_signed() {
    let changes: [fn(&mut Account); 3] = [
        |account| account.version -= 1,
        |account| account.head = postonce_shared::domain::journal::PageHash::from_bytes([7; 32]),
        |account| account.key.user = UserId::from_uuid(uuid::Uuid::from_u128(5)),
    ];
    for change in changes {
        let it = Anchored::new().await;
        let mut process = it.process(MANY).await;
        let inner = Arc::clone(&process.bank.store.archive);
        let current: Arc<Mutex<fn(&mut Account)>> = Arc::new(Mutex::new(|_| ()));
        let applied = Arc::clone(&current);
        let apply = move |account: &mut Account| applied.lock()(account);
        let archive = Arc::new(ChangedAccounts { inner, change: apply });
        process.bank = it.setup.fixture.unregistered_over(|store| store.archive = archive.clone());
        process.bank.gate_permits.register(&process.entry, std::time::Duration::MAX);
        let bank = &process.bank;
        let terms = ScrubberTerms { operations_per_day: MANY, delay: std::time::Duration::from_secs(30) };
        process.scrubber = Scrubber::new(
            &bank.store,
            bank.repair.clone(),
            Arc::clone(&bank.registration),
            Arc::clone(&bank.world),
            terms,
            Arc::default(),
        );
        it.give_key(&mut process);
        it.setup.scrub(&mut process, HOUR).await;
        let [first] = it.anchors().await.try_into().unwrap();
        *current.lock() = change;
        it.setup.scrub(&mut process, DAY + 3 * HOUR).await;
        let report = it.setup.report().await;
        let found = report.findings.iter().filter(|finding| finding.kind == "anchored_account").count();
        assert!((1..=4).contains(&found), "{:#?}", report.findings);
        assert_eq!(it.anchors().await, [first]);
        assert_eq!(it.parts().await.len(), 1, "the lists that were not signed are removed");
        *current.lock() = |_| ();
        it.setup.scrub(&mut process, 2 * HOUR).await;
        assert_eq!(it.anchors().await.len(), 2);
    }
}

#[tokio::test]
async fn anchors_are_also_files() {
    let it = Anchored::new().await;
    let mut process = it.process(MANY).await;
    it.setup.scrub(&mut process, DAY + HOUR).await;
    let folder = tempfile::tempdir().unwrap();
    let (log, lists) = (AnchorLog::new(&it.store(), &it.world()), LeafLists::new(&it.store(), &it.world()));
    let files = AnchorFolder::new(folder.path().to_owned());
    files.write_missing(&log, &lists).await.unwrap();
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let both = ["anchor-000001.json", "anchor-000001.leaves", "anchor-000002.json", "anchor-000002.leaves"];
    assert_eq!(names(), both);
    let [_, second] = it.anchors().await.try_into().unwrap();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let copy: SignedAnchor = serde_json::from_slice(&read(both[2])).unwrap();
    assert_eq!(copy, second.signed);
    assert_eq!(read(both[3]), it.leaves(&second).await[0].encode());
    // What is missing is written later; an anchor that a restore gave up keeps its file.
    std::fs::remove_file(folder.path().join(both[0])).unwrap();
    std::fs::write(folder.path().join(both[2]), "another anchor").unwrap();
    files.write_missing(&log, &lists).await.unwrap();
    assert_eq!(names().len(), 6);
    assert_eq!(read(both[2]), b"another anchor");
    files.write_missing(&log, &lists).await.unwrap();
    assert_eq!(names().len(), 6);
    let nowhere = AnchorFolder::new(folder.path().join("nowhere"));
    assert!(nowhere.write_missing(&log, &lists).await.is_err());
}
