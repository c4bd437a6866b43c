//! The ids in the path of a transaction.

use std::str::FromStr as _;
use std::sync::LazyLock;

use actix_web::dev::ResourceDef;
use actix_web::http::Uri;
use actix_web::test::TestRequest;
use postonce_shared::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey};
use postonce_web::api::arguments::PathParameters as _;
use postonce_web::api::paths::{self, TransactionPath};

use super::refusal;

/// The same route as in the table of routes. Created once, because the names of its segments are never freed.
static ROUTE: LazyLock<ResourceDef> =
    LazyLock::new(|| ResourceDef::new("/v1/users/{user_id}/accounts/{account_id}/transactions/{message_id}"));

/// Parses any bytes as a path, and as the last id of a path.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    check_path(text);
    let before =
        "/v1/users/0b1c2d3e-0000-4000-8000-000000000001/accounts/77aa0000-0000-4000-8000-000000000001";
    check_path(&format!("{before}/transactions/{text}"));
    if let Ok(partner) = PartnerId::parse(text) {
        assert_eq!(partner.as_str(), text);
        assert!(!text.contains('-') && text.is_ascii(), "{text} is not valid in a storage key");
    }
}

fn check_path(path: &str) {
    match read(path) {
        None => {}
        Some(Ok((account, message))) => {
            let partner = PartnerId::parse("shop").expect("a partner");
            let canonical = paths::of_transaction(&TransactionKey { account, partner, message });
            match read(&canonical) {
                Some(Ok(again)) => assert_eq!(again, (account, message), "{path} and {canonical}"),
                other => panic!("{canonical} became {other:?}"),
            }
        }
        Some(Err(fields)) => {
            let known = ["user_id", "account_id", "message_id"];
            assert!(
                !fields.is_empty() && fields.iter().all(|field| known.contains(&field.as_str())),
                "{fields:?}"
            );
        }
    }
}

/// Returns the ids in a path, or the names of invalid ids. Returns `None` if the path does not match the route.
fn read(path: &str) -> Option<Result<(AccountKey, MessageId), Vec<String>>> {
    let uri = Uri::from_str(path).ok()?;
    // Paths in request lines begin with a slash.
    uri.path().starts_with('/').then_some(())?;
    let mut request = TestRequest::with_uri(&uri.to_string()).to_srv_request();
    if !ROUTE.capture_match_info(request.match_info_mut()) {
        return None;
    }
    Some(
        TransactionPath::read(request.request())
            .map(|path| path.ids())
            .map_err(|error| refusal::check(&error)),
    )
}
