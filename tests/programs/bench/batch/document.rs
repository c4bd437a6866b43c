//! Documents.

use std::io::Write as _;

use bytes::Bytes;
use postonce_shared::domain::ids::AccountKey;

/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 208;

/// Deposits to the accounts in turn, each with a new id, one on each line of about 200 bytes.
pub fn deposits(items: u64, accounts: &[AccountKey]) -> Bytes {
    let capacity = usize::try_from(items).unwrap_or(usize::MAX).saturating_mul(LINE_BYTES_MAX);
    let mut lines = Vec::with_capacity(capacity);
    for (_, AccountKey { user, account }) in (0..items).zip(accounts.iter().cycle()) {
        let message = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let written = writeln!(
            lines,
            r#"{{"user_id":"{user}","account_id":"{account}","message_id":"{message}","type":"deposit","amount":"12.50","currency":"EUR"}}"#,
        );
        written.expect("memory can be written");
    }
    Bytes::from(lines)
}

#[cfg(test)]
mod tests {
    use postonce_tests::scenario::fresh_account;

    use super::*;

    #[test]
    fn accounts_are_used_in_turn_and_a_line_has_its_usual_length() {
        let accounts = [fresh_account(), fresh_account()];
        let document = String::from_utf8(deposits(3, &accounts).to_vec()).unwrap();
        let lines: Vec<&str> = document.lines().collect();
        assert_eq!(lines.len(), 3);
        for (line, account) in lines.iter().zip([accounts[0], accounts[1], accounts[0]]) {
            let item: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(item["account_id"], account.account.to_string());
            assert!(line.len() < LINE_BYTES_MAX, "{line}");
        }
    }
}
