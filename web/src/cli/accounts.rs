//! `postonce-web accounts` and `transactions`: reads balances, statements and single transactions of all partners.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use postonce_schemas::json::{Account, AccountPage, FoundTransactions, Transaction, TransactionPage};
use postonce_shared::bank::Bank;
use postonce_shared::command_output::tell;
use postonce_shared::domain::ids::{AccountKey, MessageId, OrderNumber, UserId};
use postonce_shared::domain::transaction::TransactionStatus;

use crate::access::view::View;
use crate::admin::lookup::{self, Wanted};
use crate::api::account_service::AccountService;
use crate::api::statement_query::{Order, StatementFilter, StatementQuery};
use crate::api::views;
use crate::cli::ids::parse_account;
use crate::cli::output::{json, table};

const ACCOUNTS_PER_READ: usize = 200;
/// Default number of statement entries.
const ENTRIES: u16 = 20;
/// Exit code if nothing was found.
const NOT_FOUND: u8 = 4;

/// Arguments of `accounts`.
#[derive(Debug, Clone, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub enum AccountsCommand {
    /// List the accounts of a user
    #[command(after_help = EXIT_CODES)]
    List {
        /// Id of the user
        user: UserId,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an account with its balance
    #[command(after_help = EXIT_CODES)]
    Show {
        /// Ids of user and account, with a slash between them
        #[arg(value_parser = parse_account)]
        account: AccountKey,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the last entries of a statement, the newest first
    #[command(after_help = EXIT_CODES)]
    Statement {
        /// Ids of user and account, with a slash between them
        #[arg(value_parser = parse_account)]
        account: AccountKey,
        /// Number of entries
        #[arg(long, default_value_t = ENTRIES, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Only entries before this sequence number
        #[arg(long)]
        before: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `transactions`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub struct TransactionsCommand {
    /// Order number, with its check digit
    #[arg(long, value_parser = OrderNumber::parse, required_unless_present = "message_id")]
    order_number: Option<OrderNumber>,
    /// Message id that the client chose
    #[arg(long, requires = "account", conflicts_with = "order_number")]
    message_id: Option<MessageId>,
    /// Ids of user and account, with a slash between them
    #[arg(long, value_parser = parse_account, requires = "message_id")]
    account: Option<AccountKey>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXIT_CODES: &str = "Exit codes:
  0  found
  1  the store cannot be read
  2  wrong usage
  4  not found";

/// Prints the requested accounts or entries. Returns exit code 4 if there are none.
///
/// # Errors
/// When the store cannot be read.
pub async fn run(
    command: AccountsCommand,
    bank: &Bank,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    match command {
        AccountsCommand::List { user, json } => list(bank, user, json, out).await,
        AccountsCommand::Show { account, json } => show(bank, account, json, out).await,
        AccountsCommand::Statement { account, limit, before, json } => {
            statement(bank, account, (before, usize::from(limit)), json, out).await
        }
    }
}

async fn list(
    bank: &Bank,
    user: UserId,
    as_json: bool,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let (mut accounts, mut after) = (Vec::new(), None);
    loop {
        let read = bank.store.accounts.list(user, after, ACCOUNTS_PER_READ).await;
        let read = read.context("the accounts cannot be read")?;
        let is_last = read.len() < ACCOUNTS_PER_READ;
        after = read.last().map(|account| account.key.account);
        accounts.extend(read.into_iter().map(views::account));
        if is_last {
            break;
        }
    }
    if accounts.is_empty() {
        return not_found(&format!("user {user} has no accounts"));
    }
    if as_json {
        json(&AccountPage { accounts, next_cursor: None }, out)?;
    } else {
        print_accounts(&accounts, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(
    bank: &Bank,
    key: AccountKey,
    as_json: bool,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let found = bank.store.ledger.account(key).await.context("the account cannot be read")?;
    let Some(found) = found else { return not_found(&format!("the account {key} does not exist")) };
    let account = views::account(found.value);
    if as_json {
        json(&account, out)?;
    } else {
        print_accounts(&[account], out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_accounts(accounts: &[Account], out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let row = |account: &Account| {
        let Account { user_id, account_id, currency, status, balance, available, overdraft_limit, .. } =
            account.clone();
        let name = format!("{user_id}/{account_id}");
        [name, status.into_owned(), balance, available, overdraft_limit, currency]
    };
    let head = ["ACCOUNT", "STATUS", "BALANCE", "AVAILABLE", "OVERDRAFT LIMIT", "CURRENCY"];
    table(head, accounts.iter().map(row), out)
}

async fn statement(
    bank: &Bank,
    key: AccountKey,
    (before, limit): (Option<u64>, usize),
    as_json: bool,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let service = AccountService::new(bank);
    let query = StatementQuery {
        status: TransactionStatus::Posted,
        order: Order::NewestFirst,
        filter: StatementFilter::default(),
    };
    let listing = service.statement((key, View::All), &query, before, limit).await;
    let listing = listing.context("the statement cannot be read")?;
    let Some(listing) = listing else { return not_found(&format!("the account {key} does not exist")) };
    let of_partner = |entry| {
        let (submission, outcome) = views::of_entry(key, entry);
        views::transaction_of_partner(submission, outcome)
    };
    let transactions: Vec<Transaction> = listing.items.into_iter().map(of_partner).collect();
    if as_json {
        json(&TransactionPage { transactions, next_cursor: None }, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |transaction: &Transaction| {
        let Transaction { sequence, posted_at, r#type, amount, balance_after, partner_id, .. } =
            transaction.clone();
        let number = transaction.order_number.clone().unwrap_or_default();
        let sequence = sequence.map_or_else(String::new, |sequence| sequence.to_string());
        let (posted_at, balance) = (posted_at.unwrap_or_default(), balance_after.unwrap_or_default());
        [sequence, posted_at, r#type.into_owned(), amount, balance, number, partner_id.unwrap_or_default()]
    };
    let head = ["SEQUENCE", "POSTED", "TYPE", "AMOUNT", "BALANCE", "ORDER NUMBER", "PARTNER"];
    table(head, transactions.iter().map(row), out)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the requested transactions with their events. Returns exit code 4 if there are none.
///
/// # Errors
/// When the store cannot be read.
pub async fn find(
    command: TransactionsCommand,
    bank: &Bank,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let TransactionsCommand { order_number, message_id, account, json: as_json } = command;
    let wanted = match (order_number, account.zip(message_id)) {
        (Some(number), _) => Wanted::Number(number),
        (None, Some((account, message))) => Wanted::Message(account, message),
        (None, None) => anyhow::bail!("use --order-number, or --message-id with --account"),
    };
    let found = lookup::find(&bank.store, wanted).await.context("the transactions cannot be read")?;
    if found.is_empty() {
        let is_certain = bank.store.order_numbers.contains_every_posting() || order_number.is_none();
        let hint =
            if is_certain { "" } else { "; if the number was not recorded yet, search by --message-id" };
        return not_found(&format!("no transaction was found{hint}"));
    }
    let transactions: Vec<_> = found.into_iter().map(views::found_transaction).collect();
    if as_json {
        json(&FoundTransactions { transactions }, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    for found in &transactions {
        let Transaction { message_id, user_id, account_id, r#type, amount, currency, partner_id, .. } =
            &found.transaction;
        let partner = partner_id.as_deref().unwrap_or_default();
        writeln!(out, "{type} of {amount} {currency} on {user_id}/{account_id} by {partner}: {message_id}")?;
        let facts = [
            ("order number", found.transaction.order_number.clone()),
            ("way", Some(found.way.to_string())),
            ("request id", found.request_id.clone()),
            ("batch", found.batch_id.clone()),
            ("reason", found.transaction.reason.as_ref().map(ToString::to_string)),
        ];
        for (name, value) in facts {
            value.map_or(Ok(()), |value| writeln!(out, "  {name}: {value}"))?;
        }
        found.events.iter().try_for_each(|event| writeln!(out, "  {}  {}", event.at, event.event))?;
        if found.is_dead_letter {
            writeln!(out, "  its work is in the dead letters: postonce-web dead-letters list")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::unnecessary_wraps, reason = "the last expression of functions that can fail")]
fn not_found(what: &str) -> anyhow::Result<ExitCode> {
    tell(what);
    Ok(ExitCode::from(NOT_FOUND))
}
