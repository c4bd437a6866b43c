//! The console: its addresses, links to it from elsewhere, and forms for signing in.

use actix_web::test::TestRequest;
use postonce_web::console::addresses::{SIGN_IN, SIGN_OUT, Section};
use postonce_web::console::routes::paths;

use super::test_bank::{Answer, TestBank};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
/// What a browser says about a link that is followed from another site.
const LINK: [(&str, &str); 3] =
    [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];

/// A browser with the session of an operator.
struct Visit {
    bank: TestBank,
    cookie: String,
}

impl Visit {
    async fn begin() -> Self {
        let bank = TestBank::with_account().await;
        let form = format!("key={}", bank.key().expose());
        let request = TestRequest::post().uri("/console/sign-in").insert_header(FORM).set_payload(form);
        let answer = bank.call(request).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let set = answer.header("set-cookie").unwrap();
        assert!(set.contains("; SameSite=Lax"), "a link from a mail sends it: {set}");
        let cookie = set.split(';').next().unwrap().to_owned();
        Self { bank, cookie }
    }

    async fn send(&self, request: TestRequest, headers: &[(&str, &str)]) -> Answer {
        let request = headers.iter().fold(request, |request, header| request.append_header(*header));
        self.bank.call(request.insert_header(("cookie", self.cookie.as_str()))).await
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(TestRequest::get().uri(path), headers).await
    }

    /// The hidden value of the forms.
    async fn token(&self) -> String {
        let page = self.get("/console/gate", &[]).await.text;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

/// The paths with ids in place of their parameters, and whether they have a form.
fn addresses() -> Vec<(String, bool)> {
    let id = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
    let filled = |path: &str| {
        ["user_id", "account_id", "message_id", "batch_id", "key_id", "id"]
            .iter()
            .fold(path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), id))
            .replace("{partner_id}", "shop")
            .replace("{name}", "console.css")
    };
    paths().into_iter().map(|(path, has_form)| (filled(path), has_form)).collect()
}

fn is_stream(path: &str) -> bool {
    path.starts_with("/console/live/")
}

#[actix_web::test]
async fn a_slash_at_the_end_is_no_other_page() {
    let visit = Visit::begin().await;
    let pages = addresses();
    assert!(pages.len() > 20);
    for (path, _) in &pages {
        // A stream would not end; so it is asked for as another site does, which is refused.
        let headers = if is_stream(path) { LINK.as_slice() } else { &[] };
        let with_slash = format!("{path}/");
        let (one, other) = (visit.get(path, headers).await, visit.get(&with_slash, headers).await);
        assert_eq!(one.status, other.status, "{path}: {other:?}");
        assert_eq!(one.header("location"), other.header("location"), "{path}");
        // Without an id of something that does not exist, and not only for forms.
        if !path.contains("0b1c6f0a") && one.status != 405 && !is_stream(path) {
            assert_eq!(one.status, 200, "{path}: {one:?}");
            let title = |answer: &Answer| answer.text.split("</title>").next().unwrap().to_owned();
            assert_eq!(title(&one), title(&other), "{path}");
        }
    }
    let token = visit.token().await;
    let hold = format!("act=hold&epoch=0&csrf={token}");
    let request = TestRequest::post().uri("/console/gate/").insert_header(FORM).set_payload(hold);
    let held = visit.send(request, &[]).await;
    assert_eq!(held.header("location"), Some("/console/gate?done=held"), "{held:?}");
    for unknown in ["/console//", "/console/gate//", "/consoles/", "/console/nothing/"] {
        assert_eq!(visit.get(unknown, &[]).await.status, 404, "{unknown}");
    }
    let signed_out = visit.bank.call(TestRequest::get().uri("/console/gate/")).await;
    assert_eq!(signed_out.header("location"), Some("/console/sign-in?next=%2Fconsole%2Fgate%2F"));
}

/// The recipe for a page in README.md: its section is one row of the navigation, and its path one row of the routes.
#[actix_web::test]
async fn every_page_is_in_the_navigation_and_every_section_is_a_page() {
    let visit = Visit::begin().await;
    let addresses = addresses();
    for section in Section::ALL {
        let (path, label) = (section.path(), section.label());
        assert!(addresses.iter().any(|(address, _)| address == path), "no route has the path {path}");
        let page = visit.get(path, &[]).await;
        assert_eq!(page.status, 200, "{path}: {page:?}");
        assert!(page.text.contains(&format!("<h1>{label}</h1>")), "{path}: {page:?}");
    }
    for (address, _) in addresses {
        assert!(!address.contains('{'), "no value is known for a name in {address}");
        if is_stream(&address) || [SIGN_IN, SIGN_OUT].contains(&&*address) || address.contains("/assets/") {
            continue;
        }
        let section = Section::of_path(&address);
        assert_eq!(section == Section::Overview, address == "/console", "{address} has a section");
        let page = visit.get(&address, &[]).await;
        // Addresses without a page accept forms only.
        let entry = format!(r#"<a href="{}" aria-current="page">{}</a>"#, section.path(), section.label());
        assert_eq!(page.text.contains(&entry), page.status != 405, "{address}: {page:?}");
    }
}

#[actix_web::test]
async fn a_link_from_elsewhere_leads_to_its_page_and_nothing_else_does() {
    let visit = Visit::begin().await;
    let token = visit.token().await;
    let own = [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")];
    for (path, has_form) in addresses() {
        let plain = if is_stream(&path) { 403 } else { visit.get(&path, &own).await.status };
        assert_eq!(visit.get(&path, &LINK).await.status, plain, "{path}");
        for site in ["cross-site", "same-site"] {
            let of_site = |mode, destination| {
                [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", destination)]
            };
            for (mode, destination) in [
                ("no-cors", "image"),
                ("no-cors", "script"),
                ("cors", "empty"),
                ("navigate", "iframe"),
                ("navigate", "embed"),
            ] {
                let refused = visit.get(&path, &of_site(mode, destination)).await;
                assert_eq!(refused.status, 403, "{path} {mode} {destination}: {refused:?}");
            }
            let head = visit
                .send(
                    TestRequest::default().method(actix_web::http::Method::HEAD).uri(&path),
                    &of_site("navigate", "document"),
                )
                .await;
            assert_eq!(head.status, 403, "{path}");
            if has_form {
                let body =
                    format!("csrf={token}&act=hold&epoch=0&confirm=yes&key={}", visit.bank.key().expose());
                let form = || TestRequest::post().uri(&path).insert_header(FORM).set_payload(body.clone());
                let refused = visit.send(form(), &of_site("navigate", "document")).await;
                assert_eq!(
                    (refused.status, refused.header("set-cookie")),
                    (403, None),
                    "{path}: {refused:?}"
                );
                let refused = visit.send(form(), &[("origin", "http://evil.example")]).await;
                assert_eq!(
                    (refused.status, refused.header("set-cookie")),
                    (403, None),
                    "{path}: {refused:?}"
                );
            }
        }
    }
    let gate = visit.bank.get("/v1/admin/gate").await;
    assert_eq!(gate.body["state"], "released", "nothing was done");
    // Headers that occur twice do not hide another site.
    let twice = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")];
    assert_eq!(visit.get("/console/gate", &twice).await.status, 403);
    // A link to a page asks for a key at once, if there is no session.
    let link = LINK
        .iter()
        .fold(TestRequest::get().uri("/console/gate"), |request, header| request.append_header(*header));
    let answer = visit.bank.call(link).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/console/sign-in?next=%2Fconsole%2Fgate"))
    );
}

#[actix_web::test]
async fn a_form_for_signing_in_is_small() {
    let bank = TestBank::with_account().await;
    let sign_in = async |body: String| {
        let request = TestRequest::post().uri("/console/sign-in").insert_header(FORM).set_payload(body);
        bank.call(request).await
    };
    let key = bank.key().expose();
    let filled = |size: usize| {
        let body = format!("key={key}&next=");
        let rest = size - body.len();
        body + &"x".repeat(rest)
    };
    assert_eq!(sign_in(filled(1024)).await.status, 303);
    let refused = sign_in(filled(1025)).await;
    assert_eq!(refused.status, 413);
    assert!(refused.text.contains("at most 1024 bytes"), "{refused:?}");
    // No link to the page can make its form too large.
    let long = format!("/console/sign-in?next=/console/{}", "x".repeat(2000));
    let page = bank.call(TestRequest::get().uri(&long)).await;
    assert!(page.status == 200 && !page.text.contains("xxx"), "{page:?}");
}
