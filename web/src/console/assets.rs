//! Static files of the console: its stylesheet and script, and those of the packages in `assets/vendor`, whose versions
//! `web/console/package-lock.json` pins. They are part of the binary; pages load nothing from other hosts.

use std::sync::LazyLock;

use actix_web::http::header::X_CONTENT_TYPE_OPTIONS;
use actix_web::{HttpRequest, HttpResponse, web};

use super::context::Console;
use super::session::session_of;
use crate::access::console_request::ToConsole;
use crate::api::static_document::StaticDocument;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLES: &str = "text/css; charset=utf-8";

/// Static file.
pub struct Asset {
    name: &'static str,
    /// Media type.
    pub content_type: &'static str,
    /// Uncompressed content.
    pub body: &'static [u8],
    /// Response with compressed form and entity tag, built for the first request.
    document: LazyLock<StaticDocument>,
}

macro_rules! asset {
    ($name:literal, $content_type:ident, $file:literal) => {
        Asset {
            name: $name,
            content_type: $content_type,
            body: include_bytes!($file),
            document: LazyLock::new(|| StaticDocument::new($content_type, include_bytes!($file))),
        }
    };
}

static ASSETS: [Asset; 6] = [
    asset!("console.css", STYLES, "assets/console.css"),
    asset!("console.js", SCRIPT, "assets/console.js"),
    asset!("htmx.js", SCRIPT, "assets/vendor/htmx.min.js"),
    asset!("htmx-sse.js", SCRIPT, "assets/vendor/htmx-sse.js"),
    asset!("uplot.js", SCRIPT, "assets/vendor/uplot.iife.min.js"),
    asset!("uplot.css", STYLES, "assets/vendor/uplot.min.css"),
];

/// Finds a file by name.
pub fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Answers with a static file, compressed if the client accepts it, or with status 304. Clients may cache and revalidate it.
pub async fn asset(request: HttpRequest, path: web::Path<String>) -> HttpResponse {
    let Some(found) = find(&path) else {
        return HttpResponse::NotFound().finish();
    };
    note_session(&request);
    let mut response = HttpResponse::Ok();
    response.insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"));
    found.document.respond(&request, response)
}

/// Marks the request of a signed-in operator, so that the connection stays open for the other files of the page.
fn note_session(request: &HttpRequest) {
    let console = request.app_data::<web::Data<Console>>();
    let session = console.and_then(|console| session_of(request, console, &console.secret.known()?));
    if session.flatten().is_some() {
        ToConsole::note(request, |known| known.has_session = true);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use actix_web::body::to_bytes;
    use actix_web::http::StatusCode;
    use actix_web::http::header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, VARY,
    };
    use actix_web::test::TestRequest;
    use actix_web::web::Path;
    use flate2::read::GzDecoder;

    use super::*;

    async fn get(name: &str, header: Option<(HeaderName, &str)>) -> HttpResponse {
        let request = header.into_iter().fold(TestRequest::get(), TestRequest::insert_header);
        asset(request.to_http_request(), Path::from(name.to_owned())).await
    }

    fn header(response: &HttpResponse, name: HeaderName) -> Option<&str> {
        response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    #[actix_web::test]
    async fn every_asset_is_served_in_both_forms() {
        for known in &ASSETS {
            let plain = get(known.name, None).await;
            assert_eq!(plain.status(), StatusCode::OK, "{}", known.name);
            assert_eq!(header(&plain, CONTENT_TYPE), Some(known.content_type));
            assert_eq!(header(&plain, CACHE_CONTROL), Some("no-cache"));
            assert_eq!(header(&plain, VARY), Some("Accept-Encoding"));
            assert_eq!(header(&plain, X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
            assert_eq!(header(&plain, CONTENT_ENCODING), None);
            assert_eq!(to_bytes(plain.into_body()).await.unwrap(), known.body);

            let compressed = get(known.name, Some((ACCEPT_ENCODING, "gzip, br"))).await;
            assert_eq!(header(&compressed, CONTENT_ENCODING), Some("gzip"));
            let compressed = to_bytes(compressed.into_body()).await.unwrap();
            assert!(compressed.len() < known.body.len());
            let mut read = Vec::new();
            GzDecoder::new(compressed.as_ref()).read_to_end(&mut read).unwrap();
            assert_eq!(read, known.body, "{}", known.name);
        }
    }

    #[actix_web::test]
    async fn a_client_that_has_the_file_is_told_so() {
        let first = get("console.css", None).await;
        let tag = header(&first, ETAG).unwrap();
        let again = get("console.css", Some((IF_NONE_MATCH, tag))).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(header(&again, ETAG), Some(tag));
        assert!(to_bytes(again.into_body()).await.unwrap().is_empty());
        let other = get("console.js", Some((IF_NONE_MATCH, tag))).await;
        assert_eq!(other.status(), StatusCode::OK);
    }

    #[actix_web::test]
    async fn other_names_are_unknown() {
        for name in ["", "console", "Console.css", "vendor/htmx.min.js", "../assets.rs"] {
            assert!(find(name).is_none(), "{name}");
            assert_eq!(get(name, None).await.status(), StatusCode::NOT_FOUND);
        }
    }

    /// The licenses name the versions that `package.json` pins.
    #[test]
    fn licenses_name_the_pinned_versions() {
        let licenses = include_str!("assets/vendor/LICENSES.txt");
        let package: serde_json::Value =
            serde_json::from_str(include_str!("../../console/package.json")).unwrap();
        let pinned = package["dependencies"].as_object().unwrap();
        let pinned: Vec<String> =
            pinned.iter().map(|(name, version)| format!("{name} {}", version.as_str().unwrap())).collect();
        let mut named: Vec<&str> = licenses
            .lines()
            .filter_map(|line| line.strip_suffix(')'))
            .filter_map(|line| line.split_once(" ("))
            .map(|(package, _)| package)
            .filter(|package| package.split(' ').count() == 2)
            .collect();
        named.sort_unstable();
        assert_eq!(named, pinned);
        let version = |name: &str| package["dependencies"][name].as_str().unwrap();
        let marks = [
            ("htmx.js", format!("version:\"{}\"", version("htmx.org"))),
            ("uplot.js", format!("(v{})", version("uplot"))),
        ];
        for (file, mark) in marks {
            let text = str::from_utf8(find(file).unwrap().body).unwrap();
            assert!(text.contains(&mark), "{file}");
        }
    }
}
