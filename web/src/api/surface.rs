//! The routes that an address serves: routes for partners, for operators, or both.

use crate::access::authentication::is_of_operators;

/// Selects the routes that an address serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// All routes, because operators have no address of their own.
    Everything,
    /// The routes for partners.
    Partners,
    /// The routes for operators and monitoring, and those that both use.
    Operators,
}

impl Surface {
    /// Returns whether a path is served at this address.
    pub fn has(self, path: &str) -> bool {
        let is_of_operators = is_of_operators(path);
        let of_both = ["/", "/v1/key", "/livez", "/readyz", "/openapi.json", "/openapi-strict.json"];
        let is_of_both = of_both.contains(&path) || path.starts_with("/docs");
        match self {
            Self::Everything => true,
            Self::Partners => !is_of_operators,
            Self::Operators => is_of_operators || is_of_both,
        }
    }

    /// Returns whether responses show version and commit. An address for partners only does not show them.
    pub fn shows_build(self) -> bool {
        self != Self::Partners
    }
}
