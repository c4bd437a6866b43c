//! Connection strings: their forms, and their errors, which show no secret.

use postonce_shared::adapters::azure::{AzureConnection, ConnectionError};

#[test]
fn connection_strings_are_read_in_all_forms() {
    let emulator = AzureConnection::parse("UseDevelopmentStorage=true").unwrap();
    assert_eq!(emulator.table_endpoint(), "http://127.0.0.1:10002/devstoreaccount1");

    let cloud = AzureConnection::parse(
        "DefaultEndpointsProtocol=https;AccountName=bank1;AccountKey=a2V5;EndpointSuffix=core.example",
    )
    .unwrap();
    assert_eq!(cloud.blob_endpoint(), "https://bank1.blob.core.example");
    assert_eq!(cloud.account(), "bank1");

    let short = AzureConnection::parse("AccountName=bank1;AccountKey=a2V5").unwrap();
    assert_eq!(short.queue_endpoint(), "https://bank1.queue.core.windows.net");

    let explicit = AzureConnection::parse(
        "accountname=dev; AccountKey=a2V5; BlobEndpoint=http://h:1/dev/; QueueEndpoint=http://h:2/dev;TableEndpoint=http://h:3/dev;",
    )
    .unwrap();
    assert_eq!(explicit.blob_endpoint(), "http://h:1/dev");
    assert_eq!(explicit.table_endpoint(), "http://h:3/dev");

    let without_secret = AzureConnection::parse("AccountName=bank1").unwrap();
    assert_eq!(without_secret.table_endpoint(), "https://bank1.table.core.windows.net");

    let endpoints = "BlobEndpoint=https://b/;QueueEndpoint=https://q/;TableEndpoint=https://t/";
    for secret in ["", ";SharedAccessSignature=sv=2024-11-04&sig=c2VjcmV0"] {
        let connection = AzureConnection::parse(&format!("{endpoints}{secret}")).unwrap();
        assert_eq!((connection.account(), connection.queue_endpoint()), ("", "https://q"));
    }
}

#[test]
fn an_error_about_a_connection_string_shows_none_of_its_values() {
    let check = |text: &str, expected: ConnectionError| {
        let error = AzureConnection::parse(text).unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(!error.to_string().contains("c2VjcmV0"), "{error}");
    };
    check("", ConnectionError::Missing("AccountName"));
    check("AccountName=a;c2VjcmV0", ConnectionError::Malformed(2));
    check("AccountName=a;AccountName=b", ConnectionError::Repeated(2));
    check("AccountName=a;EndpointSufix=c2VjcmV0", ConnectionError::Unknown(2));
    check("UseDevelopmentStorage=true;AccountName=c2VjcmV0", ConnectionError::EmulatorAndOthers);
    check("AccountName=a;AccountKey=c2VjcmV0!", ConnectionError::Invalid("AccountKey", "is not base64"));
    check(
        "AccountName=a;AccountKey=c2VjcmV0;SharedAccessSignature=sig=c2VjcmV0",
        ConnectionError::TwoSecrets,
    );
    check(
        "SharedAccessSignature=?sv=1&sig=c2VjcmV0;BlobEndpoint=https://h",
        ConnectionError::Missing("AccountName"),
    );
    check(
        "AccountKey=c2VjcmV0;BlobEndpoint=https://h;QueueEndpoint=https://h;TableEndpoint=https://h",
        ConnectionError::Missing("AccountName"),
    );
    for signature in ["oops", "sig=c2VjcmV0", "sv=1&sig=", "https://h/?sv=1&sig=c2VjcmV0"] {
        let invalid = ConnectionError::Invalid("SharedAccessSignature", "is not a query such as sv=…&sig=…");
        check(&format!("AccountName=a;SharedAccessSignature={signature}"), invalid);
    }
    for endpoint in ["h:1", "ftp://h", "http://h?sig=c2VjcmV0"] {
        let text = format!("AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint={endpoint}");
        assert!(AzureConnection::parse(&text).is_err(), "{endpoint}");
    }
}

#[test]
fn the_debug_text_of_a_connection_hides_the_secret() {
    for secret in ["AccountKey=c2VjcmV0", "SharedAccessSignature=sv=1&sig=c2VjcmV0"] {
        let connection = AzureConnection::parse(&format!("AccountName=a;{secret}")).unwrap();
        assert!(!format!("{connection:?}").contains("c2VjcmV0"), "{connection:?}");
    }
}
