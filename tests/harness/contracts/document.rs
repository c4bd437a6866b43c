//! The OpenAPI document, with lookups of operations and schemas.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jsonschema::{Draft, Validator};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// The document, and a cache of validators for its schemas.
#[derive(Debug)]
pub struct OpenApi {
    root: Value,
    validators: Mutex<BTreeMap<String, Arc<Validator>>>,
}

/// The part of the document that describes a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found<'a> {
    /// The operation of the request.
    Operation(&'a Value),
    /// The path exists without the method. Contains its operations by method.
    OtherMethods(&'a Map<String, Value>),
    /// The path does not exist.
    Nothing,
}

impl OpenApi {
    /// Returns the strict document that the bank publishes.
    pub fn published() -> &'static Self {
        static PUBLISHED: OnceLock<OpenApi> = OnceLock::new();
        PUBLISHED.get_or_init(|| Self::parse(postonce_schemas::OPENAPI_STRICT_JSON))
    }

    /// Parses a document.
    ///
    /// # Panics
    /// When it is not JSON.
    pub fn parse(text: &str) -> Self {
        let root = serde_json::from_str(text).expect("an OpenAPI document is JSON");
        Self { root, validators: Mutex::default() }
    }

    /// Returns the named schemas.
    pub fn schemas(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.root.pointer("/components/schemas").and_then(Value::as_object).into_iter().flatten()
    }

    /// Returns the operations of all paths.
    pub fn operations(&self) -> impl Iterator<Item = &Value> {
        let paths = self.root.get("paths").and_then(Value::as_object).into_iter().flatten();
        paths.filter_map(|(_, methods)| methods.as_object()).flat_map(Map::values)
    }

    /// Finds the operation of a method on a path without its query.
    pub fn find(&self, method: &str, path: &str) -> Found<'_> {
        let paths = self.root.get("paths").and_then(Value::as_object).into_iter().flatten();
        let matching = paths.filter(|(template, _)| matches(template, path));
        // If several templates match, the one with the fewest parameters applies.
        let best = matching.min_by_key(|(template, _)| template.matches('{').count());
        let Some((_, Value::Object(operations))) = best else { return Found::Nothing };
        // HEAD is a GET without a body.
        let method = if method == "HEAD" { "GET" } else { method };
        match operations.get(&method.to_ascii_lowercase()) {
            Some(operation) => Found::Operation(operation),
            None => Found::OtherMethods(operations),
        }
    }

    /// Returns the target of a reference, and any other value unchanged.
    pub fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let pointer = value.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
        match pointer {
            Some(pointer) => self.root.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}")),
            None => value,
        }
    }

    /// Returns a reference to the schema with this name.
    pub fn schema(&self, name: &str) -> Value {
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    /// Returns the errors of a value, validated by a schema of this document.
    pub fn errors(&self, schema: &Value, value: &Value) -> Vec<String> {
        let validator = self.validator(schema);
        let error = |error: jsonschema::ValidationError<'_>| {
            format!("at {:?}: {error}", error.instance_path().to_string())
        };
        validator.iter_errors(value).map(error).collect()
    }

    /// Returns the validator of a schema. Building one takes longer than a validation, so they are cached.
    fn validator(&self, schema: &Value) -> Arc<Validator> {
        let mut validators = self.validators.lock();
        let made = validators.entry(schema.to_string()).or_insert_with(|| {
            let components = self.root.get("components");
            let whole = json!({"allOf": [schema], "components": components});
            let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
            Arc::new(options.build(&whole).unwrap_or_else(|error| panic!("{schema} is no schema: {error}")))
        });
        Arc::clone(made)
    }
}

fn matches(template: &str, path: &str) -> bool {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if wanted == given => {}
            (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => {}
            _ => return false,
        }
    }
}
