//! The HTTP process.

fn main() {
    if std::env::args().nth(1).as_deref() == Some("openapi") {
        print!("{}", postonce_web::openapi::openapi_json());
    }
}
