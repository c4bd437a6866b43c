//! Arguments of handlers. Each reads its part of a request, and describes it in the OpenAPI document.
//!
//! Arguments are read in any order, but a request is refused in a fixed one: first for its key and scope, then for its syntax. So a
//! path, a query or a header that breaks a rule refuses the request when the handler asks for its value.

use std::convert::Infallible;
use std::future::{Ready, ready};

use actix_web::dev::Payload as RawPayload;
use actix_web::http::header::HeaderMap;
use actix_web::web::{Data, Payload};
use actix_web::{FromRequest, HttpRequest};
use postonce_shared::domain::ids::MessageId;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::security::SecurityRequirement;

use crate::access::authentication::{Caller, Undecided};
use crate::access::scopes::Permission;
use crate::api::conditions::EntityTags;
use crate::error::ApiError;
use crate::headers::{self, Handling, Wait};
use crate::query::{self, Violations};

/// An argument of a handler.
pub trait Argument: FromRequest + 'static {
    /// Describes what the argument reads. Most arguments read nothing that a client must know about.
    fn describe(_operation: &mut Operation) {}
}

impl Argument for HttpRequest {}
impl Argument for Payload {}
impl<T: 'static> Argument for Data<T> {}

impl<P: Permission> Argument for Caller<P> {
    fn describe(operation: &mut Operation) {
        operation.security = Some(vec![SecurityRequirement::new("api_key", [P::SCOPE.code()])]);
    }
}

impl Argument for Caller<Undecided> {
    fn describe(operation: &mut Operation) {
        operation.security = Some(vec![SecurityRequirement::new("api_key", [""; 0])]);
    }
}

macro_rules! arguments_of {
    ($($argument:ident)*) => {
        impl<$($argument: Argument),*> Argument for ($($argument,)*) {
            fn describe(operation: &mut Operation) {
                $($argument::describe(operation);)*
            }
        }
    };
}

arguments_of! { A }
arguments_of! { A B }
arguments_of! { A B C }
arguments_of! { A B C D }
arguments_of! { A B C D E }
arguments_of! { A B C D E F }
arguments_of! { A B C D E F G }

/// Part of a request, or the reason to refuse the request.
macro_rules! part_of_request {
    ($(#[$attribute:meta])* $name:ident, $trait:ident, $value:ty) => {
        $(#[$attribute])*
        pub struct $name<T: $trait>(Result<$value, ApiError>);

        impl<T: $trait> $name<T> {
            /// Returns the value.
            ///
            /// # Errors
            /// [`ApiError`] that names each violation.
            pub fn value(self) -> Result<$value, ApiError> {
                self.0
            }
        }

        impl<T: $trait + 'static> FromRequest for $name<T> {
            type Error = Infallible;
            type Future = Ready<Result<Self, Infallible>>;

            fn from_request(request: &HttpRequest, _: &mut RawPayload) -> Self::Future {
                ready(Ok(Self(T::read(request))))
            }
        }

        impl<T: $trait + 'static> Argument for $name<T> {
            fn describe(operation: &mut Operation) {
                operation.parameters.get_or_insert_default().extend(T::described().into_iter().map(RefOr::T));
            }
        }
    };
}

part_of_request! {
    /// The parameters in the path of a request.
    Path, PathParameters, T
}

part_of_request! {
    /// The query of a request.
    Query, QueryParameters, T::Value
}

part_of_request! {
    /// Headers of a request.
    Headers, HeaderParameters, T
}

/// The parameters of a path.
pub trait PathParameters: Sized {
    /// Returns their descriptions.
    fn described() -> Vec<Parameter>;

    /// Reads them.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 that lists every parameter that is not valid.
    fn read(request: &HttpRequest) -> Result<Self, ApiError>;
}

/// The members of a query, as texts, so that every violation is found before the request is refused.
pub trait QueryTexts: DeserializeOwned + IntoParams {
    /// What they stand for.
    type Value;

    /// Returns what they stand for, and adds a violation for each text that breaks a rule. The value counts only without violations;
    /// `None` means that there is one.
    fn parse(self, violations: &mut Violations) -> Option<Self::Value>;
}

/// The parameters of a query: one or several structs of texts.
pub trait QueryParameters {
    /// What they stand for.
    type Value;

    /// Returns their descriptions.
    fn described() -> Vec<Parameter>;

    /// Reads them, and adds their violations.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 when the query cannot be read.
    fn collect(request: &HttpRequest, violations: &mut Violations) -> Result<Option<Self::Value>, ApiError>;

    /// Reads them.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 and every violation.
    fn read(request: &HttpRequest) -> Result<Self::Value, ApiError> {
        let mut violations = Violations::default();
        let value = Self::collect(request, &mut violations)?;
        violations.finish(())?;
        value.ok_or_else(|| ApiError::internal("a query without a violation and without a value".to_owned()))
    }
}

impl<T: QueryTexts> QueryParameters for T {
    type Value = T::Value;

    fn described() -> Vec<Parameter> {
        T::into_params(|| None)
    }

    fn collect(request: &HttpRequest, violations: &mut Violations) -> Result<Option<T::Value>, ApiError> {
        Ok(query::texts::<T>(request)?.parse(violations))
    }
}

impl<A: QueryParameters, B: QueryParameters> QueryParameters for (A, B) {
    type Value = (A::Value, B::Value);

    fn described() -> Vec<Parameter> {
        A::described().into_iter().chain(B::described()).collect()
    }

    fn collect(request: &HttpRequest, violations: &mut Violations) -> Result<Option<Self::Value>, ApiError> {
        let (first, second) = (A::collect(request, violations)?, B::collect(request, violations)?);
        Ok(first.zip(second))
    }
}

/// Headers of an operation.
pub trait HeaderParameters: Sized {
    /// Returns their descriptions.
    fn described() -> Vec<Parameter>;

    /// Reads them.
    ///
    /// # Errors
    /// [`ApiError`] that names the header.
    fn read(request: &HttpRequest) -> Result<Self, ApiError>;
}

/// The value of a header.
pub trait HeaderParameter: Sized {
    /// Reads the header with that name.
    ///
    /// # Errors
    /// [`ApiError`] that names the header.
    fn read(headers: &HeaderMap, name: &str) -> Result<Self, ApiError>;
}

/// What a client prefers (RFC 7240).
#[derive(Debug, Clone, Copy)]
pub struct Preferences {
    /// The time that it is willing to wait for the result.
    pub wait: Option<Wait>,
    /// How a rejected transaction is reported.
    pub handling: Handling,
}

impl HeaderParameter for Preferences {
    fn read(headers: &HeaderMap, _: &str) -> Result<Self, ApiError> {
        Ok(Self { wait: Wait::of(headers), handling: Handling::of(headers) })
    }
}

impl HeaderParameter for Option<Wait> {
    fn read(headers: &HeaderMap, _: &str) -> Result<Self, ApiError> {
        Ok(Wait::of(headers))
    }
}

impl HeaderParameter for MessageId {
    fn read(headers: &HeaderMap, _: &str) -> Result<Self, ApiError> {
        headers::message_id(headers)
    }
}

/// A header that is only described here, because a middleware reads it before the handler.
impl HeaderParameter for () {
    fn read(_: &HeaderMap, _: &str) -> Result<Self, ApiError> {
        Ok(())
    }
}

impl HeaderParameter for Option<EntityTags> {
    fn read(headers: &HeaderMap, name: &str) -> Result<Self, ApiError> {
        Ok(EntityTags::of(headers, name))
    }
}

/// A text. Several lines are one list (RFC 9110, section 5.3).
impl HeaderParameter for Option<String> {
    fn read(headers: &HeaderMap, name: &str) -> Result<Self, ApiError> {
        let lines = headers.get_all(name).map(|value| value.to_str().unwrap_or_default().trim());
        let lines: Vec<&str> = lines.collect();
        Ok((!lines.is_empty()).then(|| lines.join(", ")))
    }
}

/// Declares the headers of operations: a struct with a member for each header.
macro_rules! header_parameters {
    ($($(#[$attribute:meta])* $struct:ident { $(
        $(#[$member_attribute:meta])* $name:literal as $type:ty => $member:ident: $value:ty,
    )* })*) => {$(
        $(#[$attribute])*
        #[derive(Debug, utoipa::IntoParams)]
        #[into_params(parameter_in = Header)]
        pub struct $struct {
            $($(#[$member_attribute])* #[param(rename = $name, value_type = $type)] pub $member: $value,)*
        }

        impl $crate::api::arguments::HeaderParameters for $struct {
            fn described() -> Vec<utoipa::openapi::path::Parameter> {
                <Self as utoipa::IntoParams>::into_params(|| None)
            }

            fn read(request: &actix_web::HttpRequest) -> Result<Self, $crate::error::ApiError> {
                Ok(Self {
                    $($member: $crate::api::arguments::HeaderParameter::read(request.headers(), $name)?,)*
                })
            }
        }
    )*};
}

pub(crate) use header_parameters;
