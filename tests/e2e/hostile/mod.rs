//! Hostile HTTP input against the real process: too large, too slow, or ambiguous. Each request is refused
//! with a clear answer, uses a bounded amount of memory, and does not delay other clients.

mod bodies;
mod fairness;
mod shapes;
mod slow;
mod xml;

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;
use postonce_tests::process_probe::memory_peak_kib;

/// Longest time for an answer on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A bank with one account, and the memory of its process before any hostile request.
struct Target {
    bank: Scenario,
    account: AccountKey,
    memory_before_kib: u64,
}

impl Target {
    /// A bank on the embedded store with short timeouts.
    async fn with(settings: &[(&str, &str)]) -> Self {
        let plan = Plan::on(StoreKind::Sqlite)
            .with("POSTONCE_HEAD_TIMEOUT_S", "2")
            .with("POSTONCE_BODY_TIMEOUT_S", "2");
        let plan = settings.iter().fold(plan, |plan, (name, value)| plan.with(name, value));
        let bank = plan.start().await;
        let account = fresh_account();
        bank.client(0).open(account).await;
        let mut target = Self { bank, account, memory_before_kib: 0 };
        target.memory_before_kib = memory_peak_kib(target.pid());
        target
    }

    fn pid(&mut self) -> u32 {
        self.bank.webs.first_mut().expect("a web process").process().pid()
    }

    async fn connect(&self) -> RawConnection {
        RawConnection::open(self.bank.webs.first().expect("a web process").address()).await
    }

    /// The head of a deposit with these lines, without the empty line at its end.
    fn deposit(&self, lines: &str) -> String {
        format!(
            "POST {}/deposits HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {}\r\n\
             Content-Type: application/json\r\n{lines}",
            path_of(self.account),
            self.bank.key(),
            fresh_id()
        )
    }

    /// Checks that the process still serves requests, and that its memory has not grown too much.
    async fn assert_healthy(&mut self, growth_kib_max: u64) {
        let client = self.bank.client(0).on_own_connections();
        drop(client.get(&path_of(self.account)).await.expect(200));
        let growth = memory_peak_kib(self.pid()).saturating_sub(self.memory_before_kib);
        println!("{growth} KiB more than before");
        assert!(growth <= growth_kib_max, "{growth} KiB more than before");
    }
}
