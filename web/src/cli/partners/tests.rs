use std::sync::Arc;

use clap::Parser;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::testing::prelude::*;

use super::*;
use crate::access::keyring::Keyring;
use crate::access::partner_broadcast::PartnerBroadcast;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: PartnersCommand,
}

struct Operator {
    store: Store,
    world: Arc<TestWorld>,
    service: PartnerService,
    audit: Arc<AuditTrail>,
}

impl Operator {
    fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let as_world: Arc<dyn World> = world.clone();
        let store = MemoryStore::new(as_world.clone());
        let network = PeerNetwork::new(&store, &as_world, DoorbellSecret::new(None)).unwrap();
        let service =
            PartnerService::new(&store, as_world.clone(), PartnerBroadcast::new(&network, as_world, None));
        let audit = Arc::new(AuditTrail::new(&store, world.clone()));
        Self { store, world, service, audit }
    }

    /// Runs a command line. Returns its output, or the text of its error.
    async fn run(&self, line: &str) -> Result<String, String> {
        let words = ["partners"].into_iter().chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let done = run(parsed.command, (&self.service, &self.audit), (&mut out, &mut err)).await;
        done.map(|()| String::from_utf8(out).unwrap()).map_err(|error| format!("{error:#}"))
    }

    async fn check_refused(&self, line: &str, expected: &str) {
        let refused = self.run(line).await.unwrap_err();
        assert!(refused.contains(expected), "{line}: {refused}");
    }

    async fn partner(&self, id: &str) -> Partner {
        self.service.find(&PartnerId::parse(id).unwrap()).await.unwrap().unwrap()
    }
}

const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
const ACCOUNT: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d12/77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";

#[tokio::test]
async fn a_partner_is_added_with_its_first_key() {
    let operator = Operator::new();
    let line = format!(
        "add shop --user {USER} --account {ACCOUNT} --scope deposit,read --format wwi --rate 5 --burst 20"
    );
    let key = operator.run(&line).await.unwrap();
    let keyring = Keyring::new(&operator.store, operator.world.clone());
    let grant = keyring.look_up(key.trim()).await.unwrap().expect("the printed key is valid").grant;
    let codes: Vec<&str> = grant.scopes.iter().map(|scope| scope.code()).collect();
    assert_eq!(codes, ["deposit", "read"]);
    let partner = operator.partner("shop").await;
    assert_eq!(*grant.partner, partner);
    assert_eq!(partner.format.as_deref(), Some("wwi"));
    assert_eq!(partner.rate, Some(RequestRate { per_second: 5, burst: 20 }));
    assert!(partner.reach.has_account(parse_account(ACCOUNT).unwrap()));
    assert_eq!(partner.reach.names(), 2);

    let shown = operator.run("show shop").await.unwrap();
    for part in [USER, ACCOUNT, "wwi", "5 requests per second, burst 20", "deposit,read", &grant.key_id] {
        assert!(shown.contains(part), "{part} is missing in {shown}");
    }
    assert!(!shown.contains(key.trim()), "the key is shown once");
    operator.check_refused(&line, "partner shop already exists").await;
    operator.run("add bank --all-accounts").await.unwrap();
    let listed = operator.run("list").await.unwrap();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["bank", "shop"]);
}

#[tokio::test]
async fn terms_are_changed_one_by_one() {
    let operator = Operator::new();
    operator.run("add shop --all-accounts --rate 5").await.unwrap();
    operator.run(&format!("change shop --user {USER}")).await.unwrap();
    let partner = operator.partner("shop").await;
    assert_eq!(partner.reach.names(), 1);
    assert_eq!(partner.rate, Some(RequestRate { per_second: 5, burst: 5 }), "other terms are kept");
    operator.run("change shop --rate default --format xml").await.unwrap();
    operator.run("suspend shop").await.unwrap();
    let partner = operator.partner("shop").await;
    assert_eq!((partner.rate, partner.format.as_deref()), (None, Some("xml")));
    assert_eq!((partner.status(), partner.reach.names()), (PartnerStatus::Suspended, 1));
    assert!(operator.run("show shop").await.unwrap().contains("a key of the scope admin"));
    operator.run("change shop --format default --all-accounts").await.unwrap();
    operator.run("resume shop").await.unwrap();
    let partner = operator.partner("shop").await;
    assert_eq!((partner.format.as_deref(), partner.status()), (None, PartnerStatus::Active));
    assert_eq!(partner.reach, Reach::Everything);
}

#[tokio::test]
async fn signature_keys_come_from_files_and_are_never_shown() {
    let operator = Operator::new();
    operator.run("add shop --all-accounts").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let secret = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";
    let (good, short) = (file("good", &format!("{secret}\n")), file("short", "c2VjcmV0"));
    operator.check_refused("change shop --require-signature true", "needs at least one signature key").await;
    let add =
        |id: &str, file: &str| format!("signature-keys add shop {id} --algorithm hmac-sha256 --file {file}");
    operator.check_refused(&add("k1", &short), "must be a secret of 32 to 256 bytes").await;
    operator.check_refused(&add("k/1", &good), "letters, digits").await;
    operator.check_refused(&add("k1", "/nowhere"), "cannot be read").await;
    operator.run(&add("k1", &good)).await.unwrap();
    operator.run(&add("k2", &good)).await.unwrap();
    operator.check_refused(&add("k3", &good), "2 keys are active").await;
    operator.run("change shop --require-signature true").await.unwrap();
    let shown = operator.run("show shop").await.unwrap();
    assert!(shown.contains("signatures required") && shown.contains("k1  hmac-sha256"), "{shown}");
    assert!(!shown.contains(secret), "{shown}");
    operator.run("signature-keys remove shop k1").await.unwrap();
    operator.check_refused("signature-keys remove shop k1", "no key with this id").await;
    operator.check_refused("signature-keys remove shop k2", "needs at least one signature key").await;
}

#[tokio::test]
async fn invalid_arguments_are_refused_with_the_allowed_values() {
    let operator = Operator::new();
    operator.run("add shop --all-accounts").await.unwrap();
    operator.check_refused("add mill", "no reach is given for mill").await;
    operator.check_refused("add Mill --all-accounts", "a lower-case letter").await;
    operator.check_refused(&format!("add mill --all-accounts --user {USER}"), "cannot be used with").await;
    operator.check_refused(&format!("add mill --account {USER}"), "two UUIDs with a slash").await;
    operator.check_refused("add mill --user 7", "is not a UUID").await;
    operator
        .check_refused(
            "add mill --all-accounts --scope fly",
            "must be one of deposit, withdraw, batch, ring, read",
        )
        .await;
    operator.check_refused("add mill --all-accounts --format csv", "must be one of json, xml, wwi").await;
    operator.check_refused("add mill --all-accounts --rate 0", "from 1 to 1000000").await;
    operator.check_refused("add mill --all-accounts --rate many", "from 1 to 1000000").await;
    operator.check_refused("add mill --all-accounts --rate +5", "from 1 to 1000000").await;
    operator.check_refused("add mill --all-accounts --rate 5 --burst 010", "must be a whole number").await;
    operator.check_refused("add mill --all-accounts --rate 5 --burst 0", "--burst must be").await;
    let twice = "add mill --all-accounts --credit-ceiling EUR=1.00 --credit-ceiling EUR=2.00";
    operator.check_refused(twice, "--credit-ceiling must have one limit for EUR").await;
    operator.check_refused("add mill --all-accounts --burst 5", "--rate").await;
    operator.check_refused("change shop", "no change is given").await;
    operator.check_refused("change shop --rate default --burst 5", "requires a number").await;
    for line in ["show mill", "suspend mill", "change mill --all-accounts", "signature-keys remove mill k"] {
        operator.check_refused(line, "partner mill does not exist").await;
    }
}
