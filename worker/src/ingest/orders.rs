//! The orders of a message.

use postonce_shared::messaging::direct_producers;
pub use postonce_shared::messaging::direct_producers::Order;

/// Reads the orders of a body. Returns `None` if it has none of the forms.
pub type Parse = fn(&[u8]) -> Option<Vec<Order>>;

/// Reads the orders of a body.
pub fn orders_in(body: &[u8]) -> Option<Vec<Order>> {
    direct_producers::parse(body)
}
