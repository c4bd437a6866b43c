use super::*;
use crate::adapters::sqlite::connection::{Role, connect};
use crate::adapters::sqlite::migrations::migrate;

/// Returns the query plan of a statement, one step per line.
pub(in crate::adapters::sqlite) fn plan(sql: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.db");
    let connection = connect(&path, Role::Write).unwrap();
    migrate(&connection, &path).unwrap();
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for parameter in 1..=statement.parameter_count() {
        statement.raw_bind_parameter(parameter, 1).unwrap();
    }
    let mut rows = statement.raw_query();
    let mut plan = String::new();
    while let Some(row) = rows.next().unwrap() {
        plan.push_str(&row.get::<_, String>(3).unwrap());
        plan.push('\n');
    }
    plan
}

#[test]
fn a_listing_starts_at_its_cursor() {
    for status in TransactionStatus::ALL {
        let plan = plan(&by_status_sql(status));
        assert!(plan.contains("(account=? AND partner=? AND message>?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        let index = format!("transactions_{}", status.code());
        assert_eq!(plan.contains(&index), status != TransactionStatus::Posted, "{plan}");
    }
}
