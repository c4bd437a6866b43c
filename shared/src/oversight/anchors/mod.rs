//! The anchors of a store ([`crate::domain::anchor`]), and the lists of their leaves.
//!
//! 1. **Collection.** The leaves are collected in account order and written in parts ([`LeafLists`]). A part can be
//!    written again until the list is signed.
//! 2. **Signature.** All parts are read again, and compared with the written digest and with the list of the previous
//!    anchor ([`AnchorSigner`]). This requires the signing key.
//! 3. **Append.** The anchor is inserted with the next sequence if that is free ([`AnchorLog`]), so that there is one
//!    chain.
//! 4. **Distribution.** The anchor is published by the API, by a command, and as a file ([`AnchorFolder`]). Only copies
//!    outside the store prove anything.
//!
//! Anchors are kept forever, and the lists of the last [`LISTS_KEPT`]. [`append()`] performs all steps at once.
//! [`prove()`] proves that the last anchor covers a decision.

mod append;
mod body;
mod folder;
mod leaf_lists;
mod log;
mod prove;
mod reader;
mod renewable_key;
mod signer;

pub use append::append;
pub use body::{AnchorBodyError, StoredAnchor};
pub use folder::{AnchorFolder, FolderFault};
pub use leaf_lists::{LeafLists, ListFault, ListProgress, ListReader, PART_LEAVES_MAX};
pub use log::{AnchorLog, StoredAnchorRow};
pub use prove::{ProofError, prove};
pub use renewable_key::RenewableKey;
pub use signer::{AnchorSigner, Contradiction, Occasion, Signing, SigningOutcome};

/// Number of anchors whose lists of leaves are kept.
pub const LISTS_KEPT: usize = 7;
