//! Accounts in response bodies.

use postonce_schemas::json as wire;
use postonce_shared::domain::account::{Account, Holder};

/// Converts an account to its wire struct.
pub fn account(account: Account) -> wire::Account {
    let (available, key) = (account.available(), account.key);
    let Account {
        key: _,
        currency,
        status,
        overdraft_limit,
        holder,
        opened_at,
        balance,
        version,
        sequence: _,
        head: _,
    } = account;
    wire::Account {
        user_id: key.user.to_string(),
        account_id: key.account.to_string(),
        currency: currency.to_string(),
        status: status.code().into(),
        balance: balance.to_string(),
        available: available.to_string(),
        overdraft_limit: overdraft_limit.to_string(),
        version,
        opened_at: opened_at.to_string(),
        holder: holder.map(|Holder { given_name, family_name }| wire::Holder { given_name, family_name }),
    }
}
