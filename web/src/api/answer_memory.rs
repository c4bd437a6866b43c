//! What a response says about the memory that its body takes until it is received.

/// Mark of a response whose body is in memory once for all answers.
#[derive(Debug, Clone, Copy)]
pub struct SharedBody;

/// Mark of a response that is produced while it is sent, in parts of at most about this number of bytes.
#[derive(Debug, Clone, Copy)]
pub struct PartBytes(pub usize);
