//! Tests of the dead letters.

use std::sync::Arc;

use super::case::{Case, moment, to_the_end};
use postonce_shared::testing::prelude::*;

/// Tests an implementation of [`postonce_shared::ports::dead_letters::DeadLetters`].
pub async fn dead_letters_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_letter_is_stored_unchanged(&case().await).await;
    the_first_letter_with_an_id_is_kept(&case().await).await;
    a_letter_is_resolved_once(&case().await).await;
    a_resolved_letter_stays_resolved(&case().await).await;
    letters_are_listed_page_by_page(&case().await).await;
    open_letters_are_counted_by_queue(&case().await).await;
    one_of_concurrent_resolutions_succeeds(&case().await).await;
}

impl Case {
    fn letter(&self, queue: &QueueName) -> DeadLetter {
        DeadLetter {
            id: self.world.uuid().to_string(),
            queue: queue.clone(),
            reason: "the account does not exist".to_owned(),
            body: b"{}".to_vec(),
            dequeue_count: 5,
            inserted_at: moment(1),
            dead_at: moment(2),
            resolution: None,
        }
    }

    fn queue(&self) -> QueueName {
        QueueName::of_partition(&self.name(), 0)
    }

    async fn kept(&self, letter: &DeadLetter) {
        self.store.dead_letters.add(letter).await.unwrap();
    }

    async fn letter_now(&self, id: &str) -> DeadLetter {
        let found = self.store.dead_letters.find(id).await.unwrap();
        found.expect("an added letter can be read")
    }

    /// Reads all letters of that queue, page by page.
    async fn listed(&self, open_only: bool, limit: usize, queue: &QueueName) -> Vec<DeadLetter> {
        let dead_letters = &self.store.dead_letters;
        let page = async |cursor: Option<String>| {
            dead_letters.list(open_only, cursor.as_deref(), limit).await.unwrap()
        };
        let mut found = to_the_end(limit, page).await;
        // Other tests may use the store at the same time.
        found.retain(|letter| letter.queue == *queue);
        found
    }

    async fn open_count(&self, queue: &QueueName) -> u64 {
        let counts = self.store.dead_letters.count_open().await.unwrap();
        let of_queue: Vec<u64> =
            counts.into_iter().filter(|(name, _)| name == queue).map(|(_, count)| count).collect();
        assert!(of_queue.len() <= 1, "each queue is counted once");
        of_queue.into_iter().sum()
    }
}

fn resolution(kind: ResolutionKind, by: &str) -> Resolution {
    Resolution { kind, by: by.to_owned(), at: moment(3) }
}

async fn a_letter_is_stored_unchanged(case: &Case) {
    let queue = case.queue();
    let missing = case.store.dead_letters.find(&case.letter(&queue).id).await.unwrap();
    assert_eq!(missing, None, "the letter was not added");
    let any_bytes: Vec<u8> = (0..=u8::MAX).cycle().take(64 * 1024).collect();
    let text = "<UserAccountTransaction>Grüße 🦀</UserAccountTransaction>";
    for body in [any_bytes, text.as_bytes().to_vec(), b"{}".to_vec(), Vec::new()] {
        let reason = format!("has {} bytes: \"Zoë's\" & <others> 🦀\nsecond line", body.len());
        let letter = DeadLetter { body, reason, dequeue_count: u32::MAX, ..case.letter(&queue) };
        case.kept(&letter).await;
        assert!(
            case.letter_now(&letter.id).await == letter,
            "the letter is stored unchanged: {}",
            letter.reason
        );
        let listed = case.listed(true, 100, &queue).await;
        assert!(listed.contains(&letter), "the letter is listed unchanged: {}", letter.reason);
    }
    let ingest = QueueName::of_ingest(&case.name()).expect("the name of a case is allowed");
    let letter = case.letter(&ingest);
    case.kept(&letter).await;
    assert_eq!(case.letter_now(&letter.id).await, letter, "a letter of an ingest queue");
    assert_eq!(case.open_count(&ingest).await, 1, "it counts for its queue");
}

async fn the_first_letter_with_an_id_is_kept(case: &Case) {
    let queue = case.queue();
    let first = case.letter(&queue);
    let second = DeadLetter {
        id: first.id.clone(),
        reason: "another one".to_owned(),
        body: vec![b'x'; 50_000],
        dead_at: moment(9),
        ..case.letter(&queue)
    };
    for letter in [&first, &second, &first] {
        case.kept(letter).await;
        assert_eq!(case.letter_now(&first.id).await, first, "the first letter is kept");
    }
    assert_eq!(case.listed(false, 100, &queue).await, [first], "the letter is listed once");
    assert_eq!(case.open_count(&queue).await, 1, "the letter is counted once");
}

async fn a_letter_is_resolved_once(case: &Case) {
    let queue = case.queue();
    let letters = [case.letter(&queue), case.letter(&queue)];
    let dead_letters = &case.store.dead_letters;
    for (letter, kind) in letters.iter().zip([ResolutionKind::Replayed, ResolutionKind::Discarded]) {
        case.kept(letter).await;
        let first = resolution(kind, "ops");
        assert!(dead_letters.resolve(&letter.id, &first).await.unwrap(), "the letter was open");
        let resolved = DeadLetter { resolution: Some(first.clone()), ..letter.clone() };
        assert_eq!(
            case.letter_now(&letter.id).await,
            resolved,
            "a resolved letter can be read, with its resolution"
        );
        for again in [first, resolution(ResolutionKind::Discarded, "others")] {
            let answer = dead_letters.resolve(&letter.id, &again).await.unwrap();
            assert!(!answer, "the letter is not open any more");
        }
        assert_eq!(case.letter_now(&letter.id).await, resolved, "the first resolution is kept");
    }
    let unknown = case.letter(&queue).id;
    let answer = dead_letters.resolve(&unknown, &resolution(ResolutionKind::Replayed, "ops")).await.unwrap();
    assert!(!answer, "the letter does not exist");
    assert_eq!(dead_letters.find(&unknown).await.unwrap(), None, "resolving an unknown letter creates none");
}

async fn a_resolved_letter_stays_resolved(case: &Case) {
    let queue = case.queue();
    let letter = case.letter(&queue);
    case.kept(&letter).await;
    let decided = resolution(ResolutionKind::Discarded, "ops");
    assert!(case.store.dead_letters.resolve(&letter.id, &decided).await.unwrap(), "the letter was open");
    case.kept(&letter).await;
    let resolved = DeadLetter { resolution: Some(decided), ..letter };
    assert_eq!(case.letter_now(&resolved.id).await, resolved, "adding the letter again does not reopen it");
    assert!(case.listed(true, 100, &queue).await.is_empty(), "a resolved letter is not listed as open");
    assert_eq!(
        case.listed(false, 100, &queue).await,
        [resolved],
        "a resolved letter is listed among all letters"
    );
    assert_eq!(case.open_count(&queue).await, 0, "a resolved letter is not counted");
}

async fn letters_are_listed_page_by_page(case: &Case) {
    let queue = case.queue();
    let mut letters: Vec<DeadLetter> = (0..23).map(|_| case.letter(&queue)).collect();
    for letter in &letters {
        case.kept(letter).await;
    }
    letters.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    for letter in letters.iter_mut().step_by(4) {
        let decided = resolution(ResolutionKind::Replayed, "ops");
        assert!(case.store.dead_letters.resolve(&letter.id, &decided).await.unwrap(), "the letter was open");
        letter.resolution = Some(decided);
    }
    let open: Vec<DeadLetter> =
        letters.iter().filter(|letter| letter.resolution.is_none()).cloned().collect();
    for limit in [5, 100] {
        assert_eq!(case.listed(false, limit, &queue).await, letters, "all letters are listed once, by id");
        assert_eq!(case.listed(true, limit, &queue).await, open, "the open letters are listed once, by id");
    }
}

async fn open_letters_are_counted_by_queue(case: &Case) {
    let (one, other) = (case.queue(), case.queue());
    assert_eq!(case.open_count(&one).await, 0, "the queue has no letters");
    for (queue, count) in [(&one, 3), (&other, 2)] {
        for _ in 0..count {
            case.kept(&case.letter(queue)).await;
        }
    }
    assert_eq!(
        (case.open_count(&one).await, case.open_count(&other).await),
        (3, 2),
        "letters are counted by queue"
    );
    let letter = case.listed(true, 100, &one).await.remove(0);
    let decided = resolution(ResolutionKind::Discarded, "ops");
    assert!(case.store.dead_letters.resolve(&letter.id, &decided).await.unwrap(), "the letter was open");
    assert_eq!(
        (case.open_count(&one).await, case.open_count(&other).await),
        (2, 2),
        "a resolved letter is not counted"
    );
}

async fn one_of_concurrent_resolutions_succeeds(case: &Case) {
    let queue = case.queue();
    for _ in 0..8 {
        let letter = case.letter(&queue);
        case.kept(&letter).await;
        let steps = (0..4).map(|racer| {
            let dead_letters = Arc::clone(&case.store.dead_letters);
            let (id, again) = (letter.id.clone(), letter.clone());
            let decided = resolution(ResolutionKind::Replayed, &format!("racer {racer}"));
            async move {
                // The worker may add the letter again at the same time.
                dead_letters.add(&again).await.unwrap();
                dead_letters.resolve(&id, &decided).await.unwrap().then_some(decided)
            }
        });
        let won: Vec<Resolution> = case.concurrently(steps).await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "exactly one of several concurrent resolutions succeeds");
        let stored = case.letter_now(&letter.id).await.resolution;
        assert_eq!(stored.as_ref(), won.first(), "the successful resolution is stored");
    }
}
