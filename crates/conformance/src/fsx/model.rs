//! What the file has to hold: its bytes in memory.

/// The contents of one file.
#[derive(Debug, Clone, Default)]
pub struct Model {
    bytes: Vec<u8>,
}

impl Model {
    /// The file's size, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Up to `len` bytes from `offset`, as a read gives them.
    pub fn read(&self, offset: u64, len: u64) -> &[u8] {
        let begin = offset.min(self.len()) as usize;
        let end = offset.saturating_add(len).min(self.len()) as usize;
        &self.bytes[begin..end]
    }

    /// Panics with the first byte that differs, if `found` is not what a read of `len` bytes at `offset` has to give.
    pub fn assert_read(&self, offset: u64, len: usize, found: &[u8]) {
        let expected = self.read(offset, len as u64);
        assert_eq!(found.len(), expected.len(), "bytes from {offset}");
        let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "the first byte that differs, from {offset}");
    }

    /// As a write does: a gap before `offset` becomes zeros, and nothing changes nothing.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let (begin, end) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[begin..end].copy_from_slice(data);
    }

    /// Shorter, or longer by zeros.
    pub fn truncate(&mut self, len: u64) {
        self.bytes.resize(len as usize, 0);
    }

    /// Zeros, within the file.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let begin = offset.min(self.len()) as usize;
        let end = (offset + len).min(self.len()) as usize;
        self.bytes[begin..end].fill(0);
    }

    /// At least `len` bytes.
    pub(super) fn extend(&mut self, len: u64) {
        if len > self.len() {
            self.truncate(len);
        }
    }

    /// Takes a range within the file away.
    pub(super) fn collapse(&mut self, offset: u64, len: u64) {
        self.bytes.drain(offset as usize..(offset + len) as usize);
    }

    /// Moves what lies behind `offset`, and puts zeros there.
    pub(super) fn insert(&mut self, offset: u64, len: u64) {
        let offset = offset as usize;
        self.bytes.splice(offset..offset, std::iter::repeat_n(0, len as usize));
    }
}
