//! The tables of Azurite through the REST API, without the code of the bank. Rows can be changed, and a table can be replaced by
//! an older copy.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::{Method, Response};
use serde_json::{Map, Value};
use sha2::Sha256;

/// Date of all requests. Azurite runs without a check of dates, and the signature covers this one.
const DATE: &str = "Sat, 21 Nov 2026 16:00:00 GMT";

/// The table service of one storage account.
#[derive(Debug, Clone)]
pub struct AzuriteTables {
    endpoint: String,
    account: String,
    key: String,
}

impl AzuriteTables {
    /// Creates access to the table service in a `POSTONCE_STORAGE` setting.
    ///
    /// # Panics
    /// When the setting has no table service.
    pub fn of(storage: &str) -> Self {
        let part = |name: &str| {
            let parts = storage.trim_start_matches("azure:").split(';');
            let found = parts.filter_map(|part| part.split_once('=')).find(|(found, _)| *found == name);
            found.unwrap_or_else(|| panic!("no {name} in {storage}")).1.to_owned()
        };
        Self {
            endpoint: part("TableEndpoint").trim_end_matches('/').to_owned(),
            account: part("AccountName"),
            key: part("AccountKey"),
        }
    }

    /// Returns all rows of a table, with the types of their properties.
    ///
    /// # Panics
    /// When Azurite refuses the request.
    pub async fn rows(&self, table: &str) -> Vec<Value> {
        let (mut rows, mut next) = (Vec::new(), Vec::new());
        loop {
            let answer = self.send(Method::GET, &format!("{table}()"), &next, None).await;
            let header = |name: &str| answer.headers().get(name).and_then(|it| it.to_str().ok());
            let continued = ["NextPartitionKey", "NextRowKey"].map(|name| {
                header(&format!("x-ms-continuation-{name}")).map(|value| (name.to_owned(), value.to_owned()))
            });
            let body: Value = answer.json().await.expect("rows are JSON");
            rows.extend(body.get("value").and_then(Value::as_array).expect("a list of rows").iter().cloned());
            next = continued.into_iter().flatten().collect();
            if next.is_empty() {
                return rows;
            }
        }
    }

    /// Replaces the content of a table by rows that were read before.
    ///
    /// # Panics
    /// When Azurite refuses a request.
    pub async fn replace(&self, table: &str, rows: &[Value]) {
        let kept: BTreeSet<String> = rows.iter().map(|row| place(table, row)).collect();
        for row in self.rows(table).await {
            let place = place(table, &row);
            if !kept.contains(&place) {
                drop(self.send(Method::DELETE, &place, &[], None).await);
            }
        }
        for row in rows {
            let is_stored = |name: &str| !name.starts_with("odata.") && !name.starts_with("Timestamp");
            let properties: Map<String, Value> = row
                .as_object()
                .expect("a row is an object")
                .iter()
                .filter(|(name, _)| is_stored(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            drop(self.send(Method::PUT, &place(table, row), &[], Some(&Value::from(properties))).await);
        }
    }

    /// Merges properties into a row, or removes the row if there are none.
    ///
    /// # Panics
    /// When Azurite refuses the request.
    pub async fn change(&self, table: &str, partition: &str, row: &str, properties: Option<&Value>) {
        let place = format!("{table}(PartitionKey='{partition}',RowKey='{row}')");
        let method = match properties {
            Some(_) => Method::from_bytes(b"MERGE").expect("it is a method"),
            None => Method::DELETE,
        };
        drop(self.send(method, &place, &[], properties).await);
    }

    async fn send(
        &self,
        method: Method,
        place: &str,
        query: &[(String, String)],
        body: Option<&Value>,
    ) -> Response {
        let Self { endpoint, account, key } = self;
        let key = STANDARD.decode(key).expect("the key is Base64");
        let mut signature = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length is valid");
        // The account occurs twice: as the account, and as the first segment of Azurite's path.
        signature.update(format!("{DATE}\n/{account}/{account}/{place}").as_bytes());
        let signature = STANDARD.encode(signature.finalize().into_bytes());
        let mut request = reqwest::Client::new()
            .request(method.clone(), format!("{endpoint}/{place}"))
            .query(query)
            .header("x-ms-date", DATE)
            .header("x-ms-version", "2019-02-02")
            .header("Authorization", format!("SharedKeyLite {account}:{signature}"))
            .header("Accept", "application/json;odata=minimalmetadata");
        if method != Method::GET {
            request = request.header("If-Match", "*");
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.expect("Azurite answers");
        let status = answer.status();
        if status.is_success() {
            return answer;
        }
        panic!("{method} {place}: {status} {}", answer.text().await.unwrap_or_default())
    }
}

fn place(table: &str, row: &Value) -> String {
    let key = |name: &str| row.get(name).and_then(Value::as_str).expect("a row has keys");
    format!("{table}(PartitionKey='{}',RowKey='{}')", key("PartitionKey"), key("RowKey"))
}
