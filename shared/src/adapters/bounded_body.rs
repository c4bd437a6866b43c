//! Reads response bodies up to a maximum size.

/// Reads the rest of a response. Returns `None` if the body has more than `max` bytes.
pub(super) async fn bounded_body(
    response: &mut reqwest::Response,
    max: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len().saturating_add(chunk.len()) > max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}
