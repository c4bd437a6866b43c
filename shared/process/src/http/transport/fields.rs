//! Counts the header fields of a compressed block (HPACK, RFC 7541, section 6) that passes in parts of any size. One byte may
//! encode a field, and a field takes about a hundred bytes of memory, so the size of a block does not bound its memory.

/// What the next bytes of a block are.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// The first byte of a field.
    Field,
    /// More bytes of an integer.
    Integer { value: u64, shift: u32, of: Integer },
    /// The first byte of the length of a string.
    Length { is_name: bool },
    /// The remaining bytes of a string.
    Text { left: u64, is_name: bool },
}

/// Meaning of an integer.
#[derive(Debug, Clone, Copy)]
enum Integer {
    /// Index of a field in a table.
    Field,
    /// Index of a name in a table; zero if the name follows as a string.
    Name,
    TableSize,
    Length {
        is_name: bool,
    },
}

#[derive(Debug)]
pub(super) struct FieldCount {
    next: Next,
    fields: usize,
}

impl FieldCount {
    pub(super) const fn new() -> Self {
        Self { next: Next::Field, fields: 0 }
    }

    /// Reads the next bytes of the block. Returns the number of fields that have begun so far.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> usize {
        while let Some((first, rest)) = bytes.split_first() {
            bytes = rest;
            self.next = match self.next {
                Next::Field => self.begin(*first),
                Next::Integer { value, shift, of } => {
                    let bits = u64::from(first & 0x7f).checked_shl(shift).unwrap_or(u64::MAX);
                    let (value, shift) = (value.saturating_add(bits), shift.saturating_add(7));
                    if first & 0x80 == 0 { after(value, of) } else { Next::Integer { value, shift, of } }
                }
                Next::Length { is_name } => integer(*first, 0x7f, Integer::Length { is_name }),
                Next::Text { left, is_name } => {
                    let passed =
                        usize::try_from(left.saturating_sub(1)).unwrap_or(usize::MAX).min(rest.len());
                    bytes = rest.get(passed..).unwrap_or_default();
                    let passed = u64::try_from(passed).unwrap_or(u64::MAX).saturating_add(1);
                    text(left.saturating_sub(passed), is_name)
                }
            };
        }
        self.fields
    }

    /// Begins a field or a change of the table size.
    const fn begin(&mut self, first: u8) -> Next {
        if first & 0xe0 == 0x20 {
            return integer(first, 0x1f, Integer::TableSize);
        }
        self.fields = self.fields.saturating_add(1);
        if first & 0x80 != 0 {
            integer(first, 0x7f, Integer::Field)
        } else if first & 0x40 != 0 {
            integer(first, 0x3f, Integer::Name)
        } else {
            integer(first, 0x0f, Integer::Name)
        }
    }
}

/// Begins an integer (section 5.1) with the low bits of a byte.
const fn integer(first: u8, bits: u8, of: Integer) -> Next {
    let value = first & bits;
    if value < bits {
        after(widened(value), of)
    } else {
        Next::Integer { value: widened(bits), shift: 0, of }
    }
}

#[expect(clippy::as_conversions, reason = "it is lossless, and `From` is not const")]
const fn widened(byte: u8) -> u64 {
    byte as u64
}

/// Returns what follows an integer.
const fn after(value: u64, of: Integer) -> Next {
    match of {
        Integer::Field | Integer::TableSize => Next::Field,
        Integer::Name => Next::Length { is_name: value == 0 },
        Integer::Length { is_name } => text(value, is_name),
    }
}

/// Returns what follows when `left` bytes of a string remain.
const fn text(left: u64, is_name: bool) -> Next {
    match (left, is_name) {
        (1.., _) => Next::Text { left, is_name },
        // The value follows its name.
        (0, true) => Next::Length { is_name: false },
        (0, false) => Next::Field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_in_each_form_however_the_bytes_are_cut() {
        let long = "v".repeat(300);
        let block = [
            // Indexed: in one byte, and as an integer of three bytes.
            &[0x82, 0xff, 0x80, 0x01][..],
            // A change of the table size.
            &[0x3f, 0xe1, 0x1f],
            // With an indexed name; with a literal name and an empty value.
            &[0x41, 0x03, b'a', b'b', b'c', 0x40, 0x01, b'x', 0x00],
            // Without indexing, and never indexed.
            &[0x00, 0x02, 0x80, 0x81, 0x01, 0x82, 0x1f, 0x05, 0x01, 0x90],
            // A long value: 127 + 173.
            &[0x04, 0x7f, 0xad, 0x01],
            long.as_bytes(),
            &[0x90],
        ]
        .concat();
        for size in 1..=block.len() {
            let mut count = FieldCount::new();
            let counted = block.chunks(size).map(|part| count.take(part)).last();
            assert_eq!(counted, Some(8), "in parts of {size}");
            assert!(matches!(count.next, Next::Field), "in parts of {size}");
        }
        assert_eq!(FieldCount::new().take(&[0x90; 500]), 500);
    }

    #[test]
    fn no_integer_overflows() {
        let mut count = FieldCount::new();
        assert_eq!(count.take(&[0x04, 0x7f]), 1);
        assert_eq!(count.take(&[0xff; 40]), 1);
        assert_eq!(count.take(&[0x7f; 40]), 1, "the value is endless");
    }
}
