//! The API, for tools (`/openapi.json`) and for people (`/docs`). The page loads nothing from the
//! internet; its security policy makes browsers see to that.

use std::sync::{Arc, LazyLock};

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, ResponseError as _};
use utoipa_swagger_ui::Config;

use crate::error::{ApiError, Code};

/// Settings of the page. Without the last one it would send the address of the document to a
/// validator on the internet.
static CONFIG: LazyLock<Arc<Config<'static>>> =
    LazyLock::new(|| Arc::new(Config::from("/openapi.json").validator_url("none")));

const POLICY: &str =
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'";

/// The frame of the page. Its links are absolute, so that `/docs` works without a slash at its end.
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

/// The OpenAPI document, as it stands in `schemas`.
pub async fn openapi() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(postonce_schemas::OPENAPI_JSON.trim_end())
}

/// The page.
pub async fn docs() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .body(PAGE)
}

/// What the page loads.
pub async fn asset(request: HttpRequest) -> HttpResponse {
    let path = request.match_info().query("asset");
    match utoipa_swagger_ui::serve(path, Arc::clone(&CONFIG)) {
        Ok(Some(file)) => HttpResponse::Ok().content_type(file.content_type).body(file.bytes.into_owned()),
        Ok(None) => ApiError::new(Code::NotFound, "The page has no such part.").error_response(),
        Err(error) => ApiError::internal(error.to_string()).error_response(),
    }
}
