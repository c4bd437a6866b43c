//! Documentation of the API: the OpenAPI documents (`/openapi.json`, `/openapi-strict.json`) and a page for both (`/docs`).
//! The content security policy of the page prevents requests to other hosts.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, ResponseError as _};
use parking_lot::Mutex;
use utoipa_swagger_ui::{Config, Url};

use crate::api::static_document::StaticDocument;
use crate::error::{ApiError, Code};

/// Settings of Swagger UI, which shows the plain document first. `validator_url("none")` disables an external validator,
/// which would get the address of the document.
static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    let documents = [Url::new("plain", "/openapi.json"), Url::new("strict", "/openapi-strict.json")];
    Arc::new(Config::new(documents).validator_url("none"))
});

const POLICY: &str =
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'";

/// HTML of the page. Its links are absolute, so `/docs` works without a trailing slash.
const PAGE: &str = r#"<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>Postonce API</title>
    <link rel="stylesheet" href="/docs/swagger-ui.css">
    <link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
  </head>
  <body>
    <div id="swagger-ui"></div>
    <script src="/docs/swagger-ui-bundle.js"></script>
    <script src="/docs/swagger-ui-standalone-preset.js"></script>
    <script src="/docs/swagger-initializer.js"></script>
  </body>
</html>
"#;

/// Returns the plain OpenAPI document of `schemas`.
pub async fn openapi(request: HttpRequest) -> HttpResponse {
    static DOCUMENT: LazyLock<StaticDocument> =
        LazyLock::new(|| StaticDocument::new("application/json", postonce_schemas::OPENAPI_JSON.trim_end()));
    DOCUMENT.respond(&request, HttpResponse::Ok())
}

/// Returns the strict OpenAPI document of `schemas`.
pub async fn openapi_strict(request: HttpRequest) -> HttpResponse {
    static DOCUMENT: LazyLock<StaticDocument> = LazyLock::new(|| {
        StaticDocument::new("application/json", postonce_schemas::OPENAPI_STRICT_JSON.trim_end())
    });
    DOCUMENT.respond(&request, HttpResponse::Ok())
}

/// Returns the HTML page.
pub async fn docs(request: HttpRequest) -> HttpResponse {
    static DOCUMENT: LazyLock<StaticDocument> =
        LazyLock::new(|| StaticDocument::new("text/html; charset=utf-8", PAGE));
    DOCUMENT.respond(&request, with_policy())
}

/// Returns an asset of the page.
pub async fn asset(request: HttpRequest) -> HttpResponse {
    /// Assets by name. Only existing assets are added.
    static ASSETS: LazyLock<Mutex<BTreeMap<String, Arc<StaticDocument>>>> = LazyLock::new(Mutex::default);
    let name = request.match_info().query("asset");
    let known = ASSETS.lock().get(name).cloned();
    if let Some(known) = known {
        return known.respond(&request, with_policy());
    }
    match utoipa_swagger_ui::serve(name, Arc::clone(&CONFIG)) {
        Ok(Some(file)) => {
            let document = Arc::new(StaticDocument::new(file.content_type, file.bytes));
            ASSETS.lock().insert(name.to_owned(), Arc::clone(&document));
            document.respond(&request, with_policy())
        }
        Ok(None) => ApiError::new(Code::NotFound, "The page has no such asset.").error_response(),
        Err(error) => ApiError::internal(error.to_string()).error_response(),
    }
}

fn with_policy() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_SECURITY_POLICY, POLICY));
    response
}
