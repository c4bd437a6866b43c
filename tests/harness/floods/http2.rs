//! HTTP/2 at the level of frames (RFC 9113), for clients that libraries do not support: windows of any size, requests without
//! an end, and responses that are never read.

/// Maximum window (section 6.9.1).
pub const WINDOW_MAX: u32 = 0x7fff_ffff;
/// Initial flow-control window of a connection (section 6.9.2).
const WINDOW_OF_CONNECTION: u32 = 65_535;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const WINDOW_UPDATE: u8 = 0x8;

/// Returns the start of a connection: the preface, the window for each response body, and the maximum window for the connection.
pub fn beginning(window: u32) -> Vec<u8> {
    let parameter = [&0x4_u16.to_be_bytes()[..], &window.to_be_bytes()].concat();
    let credit = WINDOW_MAX.saturating_sub(WINDOW_OF_CONNECTION).to_be_bytes();
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &parameter), frame(WINDOW_UPDATE, 0, 0, &credit)].concat()
}

/// Returns the acknowledgement of the server's settings.
pub fn acknowledgement() -> Vec<u8> {
    frame(SETTINGS, 0x1, 0, &[])
}

/// Returns an empty DATA frame.
pub fn empty_data(stream: u32) -> Vec<u8> {
    frame(DATA, 0, stream, &[])
}

/// Creates successive requests with the same header fields.
#[derive(Debug, Clone)]
pub struct Requests {
    first: Vec<u8>,
    next: Vec<u8>,
    is_begun: bool,
    stream: u32,
}

impl Requests {
    /// Creates requests with this method and path, and additional header fields.
    ///
    /// # Panics
    /// When a header field has more than 16 KiB.
    pub fn new(method: &str, path: &str, fields: &[(&str, &str)]) -> Self {
        let method = [&[0x02], &*text(method)].concat();
        let scheme = vec![0x87];
        // Adds each field to the dynamic table, so that later requests can refer to it.
        let mut added: Vec<Vec<u8>> =
            vec![[&[0x44], &*text(path)].concat(), [&[0x41], &*text("bank")].concat()];
        added.extend(fields.iter().map(|(name, value)| [&[0x40], &*text(name), &*text(value)].concat()));
        // The last added entry has the first index after the static table.
        let known = added.iter().zip(62_u8..).map(|(_, number)| vec![0x80 | number]);
        let known: Vec<Vec<u8>> = known.collect::<Vec<_>>().into_iter().rev().collect();
        let next = [vec![method.clone(), scheme.clone()], known].concat().concat();
        let first = [vec![method, scheme], added].concat().concat();
        Self { first, next, is_begun: false, stream: 1 }
    }

    /// Returns the next request, without a body or with a body that follows, and its stream.
    pub fn next(&mut self, has_body: bool) -> (Vec<u8>, u32) {
        let stream = self.stream;
        self.stream = stream.saturating_add(2);
        let fields = if std::mem::replace(&mut self.is_begun, true) { &self.next } else { &self.first };
        let end = if has_body { 0 } else { END_STREAM };
        (frame(HEADERS, END_HEADERS | end, stream, fields), stream)
    }
}

/// Encodes a string literal of HPACK (RFC 7541, section 5.2).
fn text(value: &str) -> Vec<u8> {
    let length = match value.len().checked_sub(0x7f) {
        None => vec![u8::try_from(value.len()).expect("less than 127")],
        // Continuation bytes have seven bits each, the lowest bits first.
        Some(rest) => {
            let [high, low] =
                u16::try_from(rest).ok().filter(|rest| *rest < 0x4000).expect("a short field").to_be_bytes();
            vec![0x7f, 0x80 | low, (high << 1) | (low >> 7)]
        }
    };
    [&length, value.as_bytes()].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_seven_bits_in_a_byte() {
        assert_eq!(text(&"x".repeat(126))[..2], [126, b'x']);
        assert_eq!(text(&"x".repeat(127))[..4], [0x7f, 0x80, 0, b'x']);
        assert_eq!(text(&"x".repeat(127 + 1337))[..4], [0x7f, 0xb9, 10, b'x']);
    }

    #[test]
    fn later_requests_name_the_fields_of_the_first() {
        let mut requests = Requests::new("GET", "/livez", &[("a", "b")]);
        let (first, stream) = requests.next(false);
        assert_eq!((stream, first[9..].len()), (1, 5 + 1 + 8 + 6 + 5));
        let (second, stream) = requests.next(true);
        assert_eq!(stream, 3);
        assert_eq!(
            second,
            [&[0, 0, 9, 1, 4, 0, 0, 0, 3, 2, 3][..], b"GET", &[0x87, 0xc0, 0xbf, 0xbe]].concat()
        );
    }
}
