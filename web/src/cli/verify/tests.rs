use clap::Parser;
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::fresh_nonce;
use postonce_shared::testing::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    command: VerifyCommand,
}

fn parse(arguments: &[&str]) -> Result<VerifyCommand, String> {
    let line = Line::try_parse_from(["verify"].iter().chain(arguments));
    line.map(|line| line.command).map_err(|error| error.to_string())
}

#[test]
fn invalid_options_are_refused_with_the_allowed_values() {
    let refused = |arguments: &[&str], allowed: &str| {
        let message = parse(arguments).unwrap_err();
        assert!(message.contains(allowed), "{message}");
    };
    refused(&["--concurrency", "0"], "must be from 1 to 64");
    refused(&["--concurrency", "65"], "must be from 1 to 64");
    refused(&["--concurrency", "x"], "must be from 1 to 64");
    refused(&["--concurrency", "+8"], "must be from 1 to 64");
    refused(&["--account", "x"], "must be the id of the user, a slash, and the id of the account");
    refused(&["--account", "x/y"], "the id of the user is not a UUID");
    let nil = uuid::Uuid::nil();
    refused(&["--account", &format!("{nil}/y")], "the id of the account is not a UUID");
    let command = parse(&["--account", &format!("{nil}/{nil}"), "--json", "--concurrency", "64"]).unwrap();
    assert!(command.json && command.account.is_some() && command.concurrency.get() == 64);
}

/// Creates a store with a consistent account, and a transaction on an account that was never opened.
async fn store(world: &Arc<dyn World>) -> (Store, AccountKey) {
    let store = MemoryStore::new(Arc::clone(world));
    let key = |account| AccountKey { user: UserId::from_uuid(world.uuid()), account };
    let (sound, orphan) = (key(AccountId::from_uuid(world.uuid())), key(AccountId::from_uuid(world.uuid())));
    let euro = Currency::parse("EUR").unwrap();
    let account = Account::open(sound, euro, OverdraftLimit::none(euro), None, world.now());
    drop(store.accounts.open(&opening(account)).await.unwrap());
    let new = Submission {
        key: TransactionKey {
            account: orphan,
            partner: PartnerId::parse("shop").unwrap(),
            message: MessageId::from_uuid(world.uuid()),
        },
        instruction: Instruction {
            kind: TransactionKind::Deposit,
            amount: Amount::try_new(1, euro).unwrap(),
            details: Details::default(),
        },
        accepted_at: world.now(),
        origin: Origin::default(),
        batch_line: None,
    };
    drop(store.ledger.accept(&[new], fresh_nonce()).await.unwrap());
    (store, orphan)
}

async fn print(arguments: &[&str]) -> (ExitCode, String, AccountKey) {
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let (store, orphan) = store(&world).await;
    let mut out = Vec::new();
    let verdict = run(&parse(arguments).unwrap(), (&store, None), &world, &mut out).await.unwrap();
    (verdict, String::from_utf8(out).unwrap(), orphan)
}

#[tokio::test]
async fn findings_are_printed_as_text_lines() {
    let (verdict, printed, orphan) = print(&[]).await;
    assert_eq!(verdict, ExitCode::FAILURE);
    let lines: Vec<&str> = printed.lines().collect();
    let expected = format!(
        "finding [account_missing] account {orphan}: the account does not exist, but has pages or \
         transactions: 0 pages and 1 transactions"
    );
    assert_eq!(lines[0], expected);
    assert!(lines[1].starts_with(
        "audited 2 accounts: 1 pages, 0 entries, 1 transactions, 0 order numbers, 0 batches, 0 audit rows, in "
    ));
    assert_eq!(lines[2..], ["findings: 1, notices: 0"]);
}

#[tokio::test]
async fn findings_are_printed_as_json_objects() {
    let (verdict, printed, orphan) = print(&["--json"]).await;
    assert_eq!(verdict, ExitCode::FAILURE);
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [finding, summary] = lines.as_slice() else { panic!("one finding and the summary, not {lines:?}") };
    assert_eq!(finding["type"], "finding");
    assert_eq!(finding["kind"], "account_missing");
    assert_eq!(finding["user_id"], orphan.user.to_string());
    assert_eq!(finding["account_id"], orphan.account.to_string());
    assert_eq!(finding["found"], "0 pages and 1 transactions");
    assert!(finding.get("sequence").is_none(), "unknown members are omitted");
    let members = [("type", json!("summary")), ("accounts", json!(2)), ("findings", json!(1))];
    for (name, value) in members {
        assert_eq!(summary[name], value, "{summary}");
    }
}

/// Output whose writes always fail.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_audit_fails_if_its_findings_cannot_be_printed() {
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let (store, _) = store(&world).await;
    let message = run(&parse(&[]).unwrap(), (&store, None), &world, &mut Closed).await.unwrap_err();
    assert_eq!(message.to_string(), "the findings could not be printed");
}
