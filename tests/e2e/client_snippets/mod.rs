//! The snippets for partners in `schemas/clients`, as they stand, against a real bank behind a network that fails: each
//! moves the money exactly once, and prints and exits with the same as the others.

mod language;

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;
use postonce_tests::scripted_proxy::{ScriptedProxy, SentRequest, Step};
use postonce_web::error::Code;
use reqwest::Method;
use serde_json::{Value, json};

use self::language::Language;

/// Runs each test once with each language.
macro_rules! in_all_languages {
    ($($test:ident),* $(,)?) => {
        in_all_languages!(@ python Python $($test)*);
        in_all_languages!(@ typescript TypeScript $($test)*);
        in_all_languages!(@ java Java $($test)*);
        in_all_languages!(@ curl Curl $($test)*);
    };
    (@ $module:ident $language:ident $($test:ident)*) => {
        mod $module {
            $(#[tokio::test]
            async fn $test() {
                use super::{Language, Payment};
                if let Some(payment) = Payment::start(Language::$language).await {
                    super::$test(payment).await;
                }
            })*
        }
    };
}

in_all_languages![
    a_deposit_is_posted_once_over_a_bad_network,
    an_overloaded_bank_is_asked_again_when_it_says,
    an_answer_that_never_ends_is_given_up,
    a_queued_deposit_is_read_until_it_is_posted,
    a_rejection_is_an_answer,
    a_refused_request_is_not_repeated,
    a_refusal_after_a_lost_answer_leaves_the_outcome_unknown,
    an_outcome_that_stays_unknown_is_found_with_the_same_id,
    line_ends_after_the_key_do_not_count,
    what_cannot_be_sent_is_wrong_usage_and_not_shown,
];

const POSTED: i32 = 0;
const REJECTED: i32 = 3;
const REFUSED: i32 = 4;
const UNKNOWN: i32 = 5;
const USAGE: i32 = 2;

const AMOUNT: &str = "12.50";
/// It needs to be quoted in JSON, and in the text of a shell.
const REFERENCE: &str = r#"invoice "7" \ Zoë's $HOME"#;

/// A snippet, and the account to which it deposits.
struct Payment {
    bank: Scenario,
    /// A client with all scopes.
    operator: Client,
    /// A client with the key of the snippet, which has the scopes that its comment names.
    partner: Client,
    key: String,
    account: AccountKey,
    snippet: Launch,
}

/// What a run of a snippet left.
struct Run {
    code: i32,
    /// The line that it printed.
    line: String,
    /// Its id.
    id: String,
    requests: Vec<SentRequest>,
}

impl Run {
    #[track_caller]
    fn expect(&self, code: i32, line: &str) {
        assert_eq!((self.code, self.line.as_str()), (code, line));
    }

    fn methods(&self) -> Vec<&str> {
        self.requests.iter().map(|request| request.method.as_str()).collect()
    }
}

impl Payment {
    async fn start(language: Language) -> Option<Self> {
        let directory = std::env::temp_dir();
        let snippet = language.launch(&directory)?;
        let bank = Plan::on(StoreKind::Sqlite).start().await;
        let operator = bank.client(0);
        let key = bank.add_partner("shop", &["deposit", "read"]);
        let (partner, account) = (operator.with_key(&key), fresh_account());
        operator.open(account).await;
        Some(Self { bank, operator, partner, key, account, snippet })
    }

    /// A network in front of the bank that treats the first connections as the steps say, and the others with `then`.
    fn network(&self, steps: impl IntoIterator<Item = Step>, then: Step) -> ScriptedProxy {
        let web = self.bank.webs.first().expect("a web process");
        ScriptedProxy::before(web.address(), steps, then)
    }

    /// Starts the snippet.
    fn submit(&self, network: &ScriptedProxy, settings: &[(&str, &str)], id: Option<&str>) -> Process {
        let AccountKey { user, account } = self.account;
        let (user, account, address) = (user.to_string(), account.to_string(), network.address());
        let payment = [user.as_str(), account.as_str(), AMOUNT, "EUR", REFERENCE];
        let mut launch = self.snippet.clone().arguments(payment.into_iter().chain(id));
        let own = [("POSTONCE_API_KEY", self.key.as_str()), ("POSTONCE_URL", address.as_str())];
        let settings =
            own.iter().chain(settings).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        launch.environment.extend(settings);
        Process::start(&launch)
    }

    /// Waits until the snippet ends, and checks what holds for every run.
    async fn finish(&self, mut process: Process, network: &ScriptedProxy) -> Run {
        let status = wait::until("the snippet ends", wait::TIMEOUT, async || {
            process.ended().ok_or_else(|| process.log().lines().join("\n"))
        })
        .await;
        process.wait_for_output();
        let (log, requests) = (process.log().lines().join("\n"), network.requests());
        let starts = ["posted ", "rejected ", "refused ", "unknown "];
        let lines: Vec<&str> =
            log.lines().filter(|line| starts.iter().any(|start| line.starts_with(start))).collect();
        let [line] = lines.as_slice() else { panic!("not one line with the outcome, {status}:\n{log}") };
        let id = line.split(' ').nth(1).unwrap_or_default();
        assert!(
            log.contains(&format!("message id {id}")),
            "the id is shown before the first attempt:\n{log}"
        );
        assert!(!log.contains(&self.key), "the key is printed");
        let posts = requests.iter().filter(|request| request.method == "POST");
        for post in posts {
            assert_eq!(post.header("idempotency-key"), id, "each attempt has the same id");
            assert_eq!(Some(&post.body), requests.first().map(|first| &first.body), "and the same body");
        }
        let code = status.code().unwrap_or_else(|| panic!("{status}"));
        let advice = format!("The money may have moved. Run again later with the message id {id}.");
        assert_eq!(log.contains(&advice), code == UNKNOWN, "{log}");
        Run { code, line: (*line).to_owned(), id: id.to_owned(), requests }
    }

    async fn run(&self, network: &ScriptedProxy) -> Run {
        self.finish(self.submit(network, &[], None), network).await
    }

    /// Checks that the bank has posted the deposit once, and that the run says so.
    async fn expect_posted_once(&self, run: &Run) {
        let statement = self.partner.listing(self.account, None, 100).await;
        let [posted] = statement.as_slice() else { panic!("not posted once: {statement:?}") };
        let text = |member: &str| posted.get(member).and_then(Value::as_str).unwrap_or_default();
        run.expect(POSTED, &format!("posted {} {} {AMOUNT}", run.id, text("order_number")));
        assert_eq!((text("message_id"), text("reference")), (run.id.as_str(), REFERENCE));
        assert_eq!(self.partner.balance(self.account).await, AMOUNT);
    }
}

async fn line_ends_after_the_key_do_not_count(payment: Payment) {
    let network = payment.network([], Step::Forward);
    let key = format!("{}\r\n", payment.key);
    let run = payment.finish(payment.submit(&network, &[("POSTONCE_API_KEY", &key)], None), &network).await;
    payment.expect_posted_once(&run).await;
}

async fn what_cannot_be_sent_is_wrong_usage_and_not_shown(payment: Payment) {
    let network = payment.network([], Step::Forward);
    let long_label = format!("http://{}.Zq9x", "a".repeat(64));
    for (name, value) in [
        ("POSTONCE_API_KEY", ""),
        ("POSTONCE_API_KEY", "\r\n"),
        ("POSTONCE_API_KEY", "po_Zq9x\rmore"),
        ("POSTONCE_API_KEY", "po_Zq9x\nX-Evil: 1"),
        ("POSTONCE_API_KEY", "po_Zq9x é"),
        ("POSTONCE_URL", "http://ada:Zq9x@127.0.0.1:1"),
        ("POSTONCE_URL", "Zq9x"),
        ("POSTONCE_URL", "http://127.0.0.1:65536"),
        ("POSTONCE_URL", "http://127.0.0.1:65999/Zq9x"),
        ("POSTONCE_URL", "http://a..Zq9x"),
        ("POSTONCE_URL", long_label.as_str()),
        ("POSTONCE_ATTEMPT_S", "Zq9x"),
        ("POSTONCE_GIVE_UP_S", "Zq9x"),
    ] {
        let (status, output) = ended(payment.submit(&network, &[(name, value)], None)).await;
        assert_eq!(status, Some(USAGE), "{name}={value:?}\n{output}");
        assert!(output.contains(name) && !output.contains("Zq9x"), "{output}");
    }
    let (status, output) = ended(payment.submit(&network, &[], Some("Zq9x\r\nX-Evil: 1"))).await;
    assert_eq!(status, Some(USAGE), "{output}");
    assert!(network.requests().is_empty(), "nothing was sent");
}

/// Waits for the end of a snippet. Returns its exit code and its output.
async fn ended(mut process: Process) -> (Option<i32>, String) {
    let status = wait::until("the snippet ends", wait::TIMEOUT, async || {
        process.ended().ok_or_else(|| process.log().lines().join("\n"))
    })
    .await;
    process.wait_for_output();
    (status.code(), process.log().lines().join("\n"))
}

/// The time from each request to the next.
fn pauses(requests: &[SentRequest]) -> Vec<Duration> {
    requests.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect()
}

async fn a_deposit_is_posted_once_over_a_bad_network(payment: Payment) {
    let faults = [Step::Break, Step::LoseAnswer, Step::CutAnswer, Step::Gateway(502)];
    let network = payment.network(faults, Step::Forward);
    // Node.js may notice only by the limit of the attempt that its first connection broke.
    let process = payment.submit(&network, &[("POSTONCE_ATTEMPT_S", "8")], None);
    let run = payment.finish(process, &network).await;
    payment.expect_posted_once(&run).await;
    assert_eq!(run.methods(), ["POST"; 4]);
}

async fn an_overloaded_bank_is_asked_again_when_it_says(payment: Payment) {
    let faults = [
        Step::Refuse(Code::RateLimited, Some(2)),
        Step::Refuse(Code::StorageUnavailable, Some(1)),
        Step::Refuse(Code::RequestTimeout, None),
        Step::Refuse(Code::InternalError, None),
    ];
    let network = payment.network(faults, Step::Forward);
    let run = payment.run(&network).await;
    payment.expect_posted_once(&run).await;
    assert_eq!(run.methods(), ["POST"; 5]);
    // Without `Retry-After`, half of a growing pause: the rest is random. A tenth less, because timers are not exact.
    let least = [1800, 900, 360, 720].map(Duration::from_millis);
    let pauses = pauses(&run.requests);
    assert!(pauses.iter().zip(least).all(|(pause, least)| *pause >= least), "{pauses:?}");
}

async fn an_answer_that_never_ends_is_given_up(payment: Payment) {
    let network = payment.network([Step::StallAnswer], Step::Forward);
    let process = payment.submit(&network, &[("POSTONCE_ATTEMPT_S", "3")], None);
    let run = payment.finish(process, &network).await;
    payment.expect_posted_once(&run).await;
    assert!(run.requests.len() >= 2, "{:?}", run.methods());
}

async fn a_queued_deposit_is_read_until_it_is_posted(payment: Payment) {
    drop(payment.operator.hold(1).await);
    let network = payment.network([Step::Forward, Step::LoseAnswer], Step::Forward);
    let process = payment.submit(&network, &[], None);
    wait::until("the transaction is read", wait::TIMEOUT, async || {
        let reads = network.requests().iter().filter(|request| request.method == "GET").count();
        if reads >= 3 { Ok(()) } else { Err(format!("{reads} reads")) }
    })
    .await;
    drop(payment.operator.release(1).await);
    let run = payment.finish(process, &network).await;
    payment.expect_posted_once(&run).await;
    assert_eq!(run.methods().iter().filter(|method| **method == "POST").count(), 1);
}

async fn a_rejection_is_an_answer(payment: Payment) {
    let frozen = json!({"status": "frozen"});
    drop(payment.operator.call(Method::PATCH, &path_of(payment.account), &frozen).await.expect(200));
    let network = payment.network([Step::LoseAnswer], Step::Forward);
    let run = payment.run(&network).await;
    run.expect(REJECTED, &format!("rejected {} account_frozen", run.id));
    assert_eq!(run.methods(), ["POST"; 2], "a final answer is not asked for again");
    assert_eq!(payment.partner.balance(payment.account).await, "0.00");
}

async fn a_refused_request_is_not_repeated(payment: Payment) {
    let unknown = Payment { account: fresh_account(), ..payment };
    let network = unknown.network([], Step::Forward);
    let run = unknown.run(&network).await;
    let prefix =
        format!("refused {} 404 account_unknown: Your key may access no account with these ids.", run.id);
    assert!(run.code == REFUSED && run.line.starts_with(&prefix), "{} {}", run.code, run.line);
    assert_eq!(run.methods(), ["POST"]);
}

async fn a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(payment: Payment) {
    let faults = [Step::LoseAnswer, Step::Refuse(Code::ApiKeyInvalid, None)];
    let network = payment.network(faults, Step::Forward);
    let run = payment.run(&network).await;
    run.expect(UNKNOWN, &format!("unknown {} 401 api_key_invalid", run.id));
    assert_eq!(payment.partner.balance(payment.account).await, AMOUNT, "the lost answer was a posting");
}

async fn an_outcome_that_stays_unknown_is_found_with_the_same_id(payment: Payment) {
    let network = payment.network([], Step::LoseAnswer);
    let process = payment.submit(&network, &[("POSTONCE_GIVE_UP_S", "4")], None);
    let run = payment.finish(process, &network).await;
    run.expect(UNKNOWN, &format!("unknown {} no answer", run.id));
    assert_eq!(payment.partner.balance(payment.account).await, AMOUNT, "the lost answers were of a posting");

    let network = payment.network([], Step::Forward);
    let later = payment.finish(payment.submit(&network, &[], Some(&run.id)), &network).await;
    assert_eq!(
        (&later.id, later.requests.first().map(|it| &it.body)),
        (&run.id, run.requests.first().map(|it| &it.body))
    );
    payment.expect_posted_once(&later).await;
}
