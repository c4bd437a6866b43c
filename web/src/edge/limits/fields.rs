//! Header fields with the quota of a caller and its remainder (draft-ietf-httpapi-ratelimit-headers-10).

use postonce_shared::access::token_bucket::RateStatus;
use postonce_shared::domain::partner::RequestRate;

/// Returns the value of `RateLimit-Policy`: the quota, and the time window in which it is granted, in seconds.
pub fn policy(standing: &RateStatus) -> String {
    let RequestRate { per_second, burst } = standing.rate;
    let window = burst.div_ceil(per_second.max(1)).max(1);
    format!("\"default\";q={burst};w={window}")
}

/// Returns the value of `RateLimit`: the remaining quota, and the seconds until it is full again.
pub fn limit(standing: &RateStatus) -> String {
    format!("\"default\";r={};t={}", standing.remaining, standing.full_in_s)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postonce_shared::access::token_bucket::Bucket;

    use super::*;

    #[test]
    fn the_fields_contain_the_quota_and_its_remainder() {
        let rate = RequestRate { per_second: 1, burst: 60 };
        let mut bucket = Bucket::full(rate, Duration::ZERO);
        for _ in 0..60 {
            assert_eq!(bucket.take(rate, Duration::ZERO).retry_in_s, None);
        }
        let empty = bucket.take(rate, Duration::ZERO);
        assert_eq!(policy(&empty), r#""default";q=60;w=60"#);
        assert_eq!(limit(&empty), r#""default";r=0;t=60"#);
    }
}
