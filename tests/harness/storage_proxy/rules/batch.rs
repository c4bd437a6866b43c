//! Parsing of entity group transactions. Line ends are LF or CRLF: the service and the emulator accept both.

use hyper::Method;

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) method: Method,
    /// The path of its URL, with the query.
    pub(crate) path: &'a str,
    pub(crate) if_match: Option<&'a str>,
    pub(crate) body: &'a str,
}

/// Returns the operations of a batch with this content type, or the reason why it has none.
pub(crate) fn operations<'a>(
    content_type: &'a str,
    body: &'a [u8],
) -> Result<Vec<Operation<'a>>, &'static str> {
    let body = std::str::from_utf8(body).map_err(|_| "its body is not UTF-8")?;
    let outer = boundary(content_type).ok_or("its Content-Type is not multipart/mixed with a boundary")?;
    let (_, batch) = body.split_once(&format!("--{outer}")).ok_or("its body has no part of the batch")?;
    let (head, changes) = split_head(batch.trim_start()).ok_or("its change set has no end of the headers")?;
    let inner = head.lines().find_map(boundary).ok_or("its change set has no boundary")?;
    let delimiter = format!("--{inner}");
    let parts = changes.split(delimiter.as_str()).skip(1);
    parts.take_while(|part| !part.starts_with("--")).map(|part| operation(part.trim_start())).collect()
}

/// Returns the boundary of a header such as `Content-Type: multipart/mixed; boundary=batch_1`.
fn boundary(header: &str) -> Option<&str> {
    let (_, parameters) = header.split_once("multipart/mixed")?;
    let (_, value) = parameters.split_once("boundary=")?;
    let value = value.split(';').next()?.trim().trim_matches('"');
    (!value.is_empty()).then_some(value)
}

fn operation(part: &str) -> Result<Operation<'_>, &'static str> {
    const MALFORMED: &str = "an operation is not an HTTP request";
    let (_, request) = split_head(part).ok_or(MALFORMED)?;
    // A request without a body may end after its headers.
    let (head, body) = split_head(request).unwrap_or((request, ""));
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(url), Some("HTTP/1.1")) = (words.next(), words.next(), words.next()) else {
        return Err(MALFORMED);
    };
    let if_match = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("if-match").then(|| value.trim())
    });
    let path = url.split_once("://").map_or(url, |(_, rest)| rest.split_at(rest.find('/').unwrap_or(0)).1);
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| MALFORMED)?;
    Ok(Operation { method, path, if_match, body: body.trim() })
}

/// Splits at the first empty line.
fn split_head(text: &str) -> Option<(&str, &str)> {
    let ends = ["\r\n\r\n", "\n\n"].map(|end| text.find(end).map(|at| (at, end.len())));
    let (at, length) = ends.into_iter().flatten().min()?;
    let (head, rest) = text.split_at(at);
    Some((head, rest.get(length..)?))
}
