//! The listing of the anchors.

use std::sync::Arc;

use actix_web::test::TestRequest;
use postonce_shared::oversight::anchors::{AnchorSigner, Occasion, SigningOutcome, append};
use postonce_shared::testing::prelude::*;
use serde_json::Value;

use super::test_bank::TestBank;

const ANCHORS: &str = "/v1/admin/anchors";

#[actix_web::test]
async fn the_listing_has_pages_and_refuses_invalid_parameters() {
    let bank = TestBank::with_account().await;
    let empty = bank.get(ANCHORS).await;
    assert_eq!((empty.status, &empty.body["anchors"]), (200, &Value::Array(Vec::new())), "{empty:?}");
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let signer = AnchorSigner::new(&bank.store, &world, AnchorKey::from_seed([1; 32]));
    for occasion in [Occasion::Round, Occasion::Round, Occasion::Restore] {
        let made = append(&bank.store, &world, &signer, occasion).await.unwrap();
        assert!(matches!(made.outcome, SigningOutcome::Appended(_)), "{made:?}");
    }
    let (mut found, mut path) = (Vec::new(), format!("{ANCHORS}?limit=2"));
    for _ in 0..2 {
        let page = bank.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        let anchors = page.body["anchors"].as_array().unwrap();
        found.extend(anchors.iter().map(|anchor| format!("{} {}", anchor["sequence"], anchor["kind"])));
        let cursor = page.body["next_cursor"].as_str().unwrap_or_default().to_owned();
        assert_eq!(cursor.is_empty(), found.len() == 3, "only the last page has no cursor");
        path = format!("{ANCHORS}?limit=2&cursor={cursor}");
    }
    assert_eq!(found, ["3 \"restore\"", "2 \"round\"", "1 \"round\""]);
    let refused = bank.get(&format!("{ANCHORS}?limit=0")).await;
    assert_eq!((refused.problem(), refused.fields()), ((400, "query_invalid"), vec!["limit"]));
    let refused = bank.get(&format!("{ANCHORS}?cursor=AAAAAAAAAAAAAAA")).await;
    assert_eq!(refused.problem(), (400, "cursor_invalid"));
    assert_eq!(bank.call(TestRequest::get().uri(ANCHORS)).await.status, 401);
}
