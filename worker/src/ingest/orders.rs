//! The orders of one message.

use postonce_shared::messaging::direct_producers::{self, DirectOrder, DirectOrderError};

/// One order of a message.
#[derive(Debug, Clone)]
pub struct Order {
    /// This order alone, as a body that [`orders_in`] accepts.
    pub body: Vec<u8>,
    /// The order, or its violations.
    pub order: Result<DirectOrder, DirectOrderError>,
}

/// Returns the orders of a message, in order and at least one; `None` if the body has none of the forms.
pub type Parse = fn(&[u8]) -> Option<Vec<Order>>;

/// As [`Parse`], for the published forms.
pub fn orders_in(body: &[u8]) -> Option<Vec<Order>> {
    direct_producers::parse(body).map(|order| vec![Order { body: body.to_vec(), order }])
}
