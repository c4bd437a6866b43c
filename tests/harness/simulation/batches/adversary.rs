//! Forged messages of batches. They may cause that a chunk is posted again, but nothing else.

use crate::simulation::adversary::{Adversary, SEAL, bare, under_seal};

/// Lists of chunks for forged messages.
const CHUNKS: [&str; 4] = ["[0]", "[0,1,2,3,4,5,6,7]", "[4294967295]", "[0,0,0,0,0,0,0,0,0]"];

/// Returns a forged body that has an effect if any part of it is trusted.
pub fn forge(adversary: &Adversary, one: String, other: String) -> Option<String> {
    let scheduler = adversary.scheduler();
    let chunk = scheduler.below(4).to_string();
    let rich = one.replace("\"count\":1", "\"count\":1000");
    Some(match scheduler.below(10) {
        // With the original seal, without a seal, or with the seal of another message.
        0 => rich,
        1 => bare(&rich),
        2 => other.get(SEAL).map(|seal| under_seal(&rich, seal)).unwrap_or(rich),
        3 => bare(&with_number(&one, "chunk", &chunk)),
        4 => with_number(&one, "chunk", &chunk),
        // Chunks that do not exist or must wait, or too many chunks.
        5 | 6 => named(&one, scheduler.one_of(&CHUNKS)),
        7 => bare(&one).replacen("\"partner\":\"shop\"", "\"partner\":\"other\"", 1),
        // An invalid version. A newer version would wait for a newer worker, which does not exist here.
        8 => bare(&one).replacen("\"v\":1", "\"v\":\"1\"", 1),
        _ => one.get(..one.len().div_euclid(2)).unwrap_or_default().to_owned(),
    })
}

/// Replaces the number of a member.
fn with_number(text: &str, name: &str, number: &str) -> String {
    let head = format!("\"{name}\":");
    let Some((before, after)) = text.split_once(&head) else { return text.to_owned() };
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}{head}{number}{rest}")
}

/// Returns a message that names chunks of the same batch.
fn named(text: &str, chunks: &str) -> String {
    let member = |name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    let (partner, batch) = (member("partner").unwrap_or("shop"), member("batch").unwrap_or_default());
    format!(r#"{{"v":1,"partner":"{partner}","batch":"{batch}","chunks":{chunks}}}"#)
}
