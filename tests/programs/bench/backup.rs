//! A backup of a store on Azurite, and its restore on SQLite: time, storage operations, and whether every balance is the same to
//! the cent.

use std::path::Path;
use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;
use tokio::task::block_in_place;

use crate::bench::prelude::*;
use crate::bench::{Options, arm, batch};

const TRANSACTIONS: u64 = 100_000;
/// Not a divisor of the transactions, so that balances differ.
const ACCOUNTS: usize = 999;
/// Longest time for a command.
const TIME_MAX: Duration = Duration::from_secs(1800);

const BACKUP: Measure = Measure::of("backup", Unit::Microseconds);
const OPERATIONS: Measure = Measure::of("storage operations of the backup", Unit::Hundredths);
const SIZE: Measure = Measure::of("size of the backup", Unit::Bytes);
const RESTORE: Measure = Measure::of("restore on SQLite", Unit::Microseconds);
const VERIFY: Measure = Measure::of("verify of the restored store", Unit::Microseconds);

/// Measures it once.
pub async fn measure(options: &Options, machine: &Machine) {
    let azurite = Azurite::private_in_memory();
    let plan = Plan::on_private(&azurite).in_directory(machine.directory());
    let bank = plan.with("POSTONCE_REQUESTS_PER_SECOND", "100000").start().await;
    bank.until_workers_ready().await;
    let target = Target::of([bank.webs[0].address()], bank.key());
    let accounts = arm::open(&target, options.accounts(ACCOUNTS)).await;
    let transactions = options.items(TRANSACTIONS);
    batch::deposit(&target, &accounts, transactions).await;

    let (directory, file) = (bank.directory(), bank.directory().join("backup.db"));
    let (store, backup) = (directory.join("restored.db"), file.to_string_lossy());
    let restored = bank.settings.clone().with("POSTONCE_STORAGE", format!("sqlite:{}", store.display()));
    let (backup_time, printed) = run(&bank.settings, &["backup", &backup], &directory);
    let (restore_time, _) = run(&restored, &["restore", &backup, "--yes"], &directory);
    let (verify_time, verified) = run(&restored, &["verify"], &directory);
    assert!(verified.contains("findings: 0, notices: 0"), "{verified}");

    let service = Service::start(Binary::Web, &restored, &[], &directory);
    let on_azure = balances(&bank.client(0), &accounts).await;
    assert_eq!(
        balances(&bank.client(0).at(service.address()), &accounts).await,
        on_azure,
        "equal to the cent"
    );

    let sample = Sample::from([
        (BACKUP, micros(backup_time)),
        (OPERATIONS, service::number_after("storage operations: ", &printed).saturating_mul(100)),
        (SIZE, size_of(&file)),
        (RESTORE, micros(restore_time)),
        (VERIFY, micros(verify_time)),
    ]);
    let mut report = Report::of("backup");
    let phase = format!("{transactions} transactions on {} accounts", accounts.len());
    report.add(&phase, &Series::of_round(vec![("postonce", sample)]), &[]);
    report.finish(machine);
}

/// Runs a command, and returns its time and what it printed.
fn run(settings: &Settings, arguments: &[&str], directory: &Path) -> (Duration, String) {
    let watch = Stopwatch::start();
    let launch = service::launch(Binary::Web, settings, arguments, directory);
    let (status, lines) = block_in_place(|| launch.run(TIME_MAX));
    let printed = lines.join("\n");
    assert!(status.success(), "{arguments:?}: {printed}");
    eprintln!("{printed}");
    (watch.elapsed(), printed)
}

fn size_of(file: &Path) -> u64 {
    std::fs::metadata(file).expect("the backup exists").len()
}

async fn balances(client: &Client, accounts: &[AccountKey]) -> Vec<String> {
    let mut balances = Vec::with_capacity(accounts.len());
    for account in accounts {
        balances.push(client.balance(*account).await);
    }
    balances
}
