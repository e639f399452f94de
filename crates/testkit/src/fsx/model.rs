//! What the file has to hold: its bytes in memory.

/// The contents of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    bytes: Vec<u8>,
}

impl Model {
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Up to `len` bytes from `offset`, as a read gives them.
    pub(super) fn read(&self, offset: u64, len: u64) -> &[u8] {
        let begin = offset.min(self.len()) as usize;
        let end = offset.saturating_add(len).min(self.len()) as usize;
        &self.bytes[begin..end]
    }

    /// As a write does: a gap before `offset` becomes zeros.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let (begin, end) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[begin..end].copy_from_slice(data);
    }

    pub(super) fn truncate(&mut self, len: u64) {
        self.bytes.resize(len as usize, 0);
    }

    /// Zeros, within the file.
    pub(super) fn zero(&mut self, offset: u64, len: u64) {
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
