use futures::future::{BoxFuture, join_all};
use futures::poll;

use super::*;

/// Returns a writer for an in-memory database with a table of names and a table that references it.
fn writer() -> Writer {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON; CREATE TABLE names (name TEXT PRIMARY KEY);
             CREATE TABLE links (name TEXT REFERENCES names DEFERRABLE INITIALLY DEFERRED);",
        )
        .unwrap();
    Writer::start(connection, Arc::new(OpenFiles::none())).unwrap()
}

fn add<'a>(writer: &'a Writer, name: &'static str, keep: bool) -> BoxFuture<'a, Result<(), StoreFault>> {
    Box::pin(writer.run("adding", move |connection| {
        connection.prepare_cached("INSERT INTO names VALUES (?1)")?.execute([name])?;
        Ok(if keep { Verdict::Keep(()) } else { Verdict::Undo(()) })
    }))
}

/// Runs jobs in one group. The first job blocks the thread until all others are in the channel.
async fn together(
    writer: &Writer,
    jobs: Vec<BoxFuture<'_, Result<(), StoreFault>>>,
) -> Vec<Result<(), StoreFault>> {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let first: BoxFuture<'_, _> = Box::pin(writer.run("holding the thread", move |_| {
        released.recv().expect("the test releases it");
        Ok(Verdict::Keep(()))
    }));
    let mut all: Vec<_> = [first].into_iter().chain(jobs).collect();
    // Polling a future once puts its job into the channel.
    for job in &mut all {
        assert!(poll!(job).is_pending());
        // The runtime limits the operations of a task between two yields. Without this yield, later jobs would not be sent.
        tokio::task::yield_now().await;
    }
    release.send(()).expect("the thread waits");
    let mut answers = join_all(all).await;
    answers.drain(1..).collect()
}

async fn names(writer: &Writer) -> Vec<String> {
    let names = writer.run("reading", |connection| {
        let mut statement = connection.prepare_cached("SELECT name FROM names ORDER BY name")?;
        let names = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(Verdict::Keep(names))
    });
    names.await.unwrap()
}

#[tokio::test]
async fn jobs_that_wait_share_one_commit() {
    let writer = writer();
    let answers = together(&writer, vec![add(&writer, "a", true), add(&writer, "b", true)]).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(writer.commits(), 1);
    assert_eq!(names(&writer).await, ["a", "b"]);
}

#[tokio::test]
async fn a_group_has_a_bound() {
    let writer = writer();
    let nothing = || -> BoxFuture<'_, _> { Box::pin(writer.run("nothing", |_| Ok(Verdict::Keep(())))) };
    let jobs = (0..300).map(|_| nothing()).collect();
    assert_eq!(together(&writer, jobs).await.len(), 300);
    assert_eq!(writer.commits(), 3);
}

#[tokio::test]
async fn a_job_is_undone_alone() {
    let writer = writer();
    let panics: BoxFuture<'_, _> = Box::pin(writer.run("panicking", |connection| {
        connection.execute("INSERT INTO names VALUES ('panicked')", [])?;
        panic!("on purpose")
    }));
    let jobs = vec![
        add(&writer, "a", true),
        add(&writer, "undone", false),
        panics,
        // The second insert violates the primary key.
        add(&writer, "a", true),
        add(&writer, "b", true),
    ];
    let answers = together(&writer, jobs).await;
    assert!(matches!(&answers[..], [Ok(()), Ok(()), Err(_), Err(_), Ok(())]), "{answers:?}");
    let Err(StoreFault::Refused { source, .. }) = &answers[2] else { panic!("{answers:?}") };
    assert_eq!(source.to_string(), "a bug: on purpose");
    assert_eq!(names(&writer).await, ["a", "b"]);
}

#[tokio::test]
async fn a_failed_commit_is_unclear_for_all_jobs() {
    let writer = writer();
    // COMMIT checks deferred constraints.
    let breaks_commit: BoxFuture<'_, _> = Box::pin(writer.run("linking", |connection| {
        connection.execute("INSERT INTO links VALUES ('nobody')", [])?;
        Ok(Verdict::Keep(()))
    }));
    let jobs = vec![add(&writer, "a", true), breaks_commit, add(&writer, "undone", false)];
    for answer in together(&writer, jobs).await {
        assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
    }
    assert_eq!(names(&writer).await, Vec::<String>::new(), "the next transaction is not affected");
}

#[tokio::test]
async fn a_transaction_that_sqlite_rolls_back_is_unclear_for_all_jobs() {
    let writer = writer();
    // SQLite may roll back the whole transaction when the disk is full. This job simulates that.
    let gives_up: BoxFuture<'_, _> = Box::pin(writer.run("giving up", |connection| {
        connection.execute_batch("ROLLBACK")?;
        Ok(Verdict::Keep(()))
    }));
    let jobs = vec![add(&writer, "a", true), gives_up];
    for answer in together(&writer, jobs).await {
        assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
    }
    add(&writer, "b", true).await.unwrap();
    assert_eq!(names(&writer).await, ["b"]);
}

#[tokio::test]
async fn dropping_the_writer_finishes_the_waiting_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("writer.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE names (name TEXT PRIMARY KEY)").unwrap();
    let writer = Writer::start(connection, Arc::new(OpenFiles::none())).unwrap();
    let canceled = add(&writer, "a", true);
    // The future was polled once and then dropped.
    assert!(futures::FutureExt::now_or_never(canceled).is_none());
    drop(writer);
    let count: i64 = Connection::open(&path)
        .and_then(|connection| connection.query_row("SELECT count(*) FROM names", [], |row| row.get(0)))
        .unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_caller_does_not_wait_for_a_blocked_thread() {
    let mut writer = writer();
    writer.answer_max = Duration::from_millis(50);
    let (release, released) = std::sync::mpsc::channel::<()>();
    let hangs = writer.run("hanging", move |_| {
        // An error means that the test has ended.
        let _over = released.recv();
        Ok(Verdict::Keep(()))
    });
    assert!(matches!(hangs.await, Err(StoreFault::Unavailable { .. })));
    // The next job waits in the channel and may still run, so its outcome is unknown too.
    assert!(matches!(add(&writer, "late", true).await, Err(StoreFault::Unavailable { .. })));
    drop(release);
    writer.answer_max = ANSWER_MAX;
    assert_eq!(names(&writer).await, ["late"]);
}

#[tokio::test]
async fn a_full_disk_truncates_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.db");
    let connection = Connection::open(&path).unwrap();
    let sql = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE names (name TEXT PRIMARY KEY);
               PRAGMA max_page_count = 40;";
    connection.execute_batch(sql).unwrap();
    let writer = Writer::start(connection, Arc::new(OpenFiles::none())).unwrap();
    let log = || std::fs::metadata(folder.path().join("full.db-wal")).unwrap().len();
    add(&writer, "kept", true).await.unwrap();
    assert!(log() > 0);
    let too_large: BoxFuture<'_, _> = Box::pin(writer.run("filling", |connection| {
        connection.execute("INSERT INTO names VALUES (hex(zeroblob(200000)))", [])?;
        Ok(Verdict::Keep(()))
    }));
    let answer: Result<(), StoreFault> = too_large.await;
    assert!(matches!(answer, Err(StoreFault::Unavailable { .. })), "{answer:?}");
    assert_eq!(names(&writer).await, ["kept"], "the next transaction is not affected");
    assert_eq!(log(), 0);
}
