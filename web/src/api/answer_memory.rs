//! Memory of response bodies until clients have received them, recorded in response extensions.

/// Marks a response whose body is in memory only once, for all responses.
#[derive(Debug, Clone, Copy)]
pub struct SharedBody;

/// Marks a streamed response, with the approximate maximum size of its parts in bytes.
#[derive(Debug, Clone, Copy)]
pub struct PartBytes(pub usize);
