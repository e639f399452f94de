//! Memory of a process, whose pages come and go, and of which a part is bad.

#[path = "cut.rs"]
mod cut;

use transom_guest::memory::{ByteSink, ByteSource, IoSlice, IoSliceMut};

use cut::{cut, cut_mut};

/// An odd length, so that these pages do not coincide with those of the cache.
const PAGE: usize = 1001;

/// What serves a fault.
type Serve<'a> = Box<dyn FnMut() + 'a>;

/// Some bytes of a process, from `begin` on.
pub(crate) struct Paged<'a> {
    pub(crate) bytes: Vec<u8>,
    /// Where in a page the bytes begin.
    begin: usize,
    present: Vec<bool>,
    /// The number of bytes before the first bad one.
    good: usize,
    /// Decides which page goes away next.
    random: u64,
    pub(crate) serve: Option<Serve<'a>>,
}

impl<'a> Paged<'a> {
    /// Nothing is present. Pages from number `bad` on never are.
    pub(crate) fn new(bytes: Vec<u8>, begin: usize, bad: usize, random: u64) -> Self {
        let begin = begin % PAGE;
        let good = (bad * PAGE).saturating_sub(begin).min(bytes.len());
        let present = vec![false; (begin + bytes.len()) / PAGE + 1];
        Self { bytes, begin, present, good, random, serve: None }
    }

    /// Returns the number of bytes before the first bad one.
    pub(crate) fn good(&self) -> usize {
        self.good
    }

    fn page(&self, at: usize) -> usize {
        (self.begin + at) / PAGE
    }

    /// Returns how many of `len` bytes at `at` are present.
    fn present(&self, at: usize, len: usize) -> usize {
        let mut end = at;
        while end < at + len && self.present[self.page(end)] {
            end = (self.page(end) + 1) * PAGE - self.begin;
        }
        end.min(at + len) - at
    }

    fn fault(&mut self, at: usize, len: usize) -> usize {
        if let Some(serve) = &mut self.serve {
            serve();
        }
        // At most a few pages at once.
        let end = (at + len.min(3 * PAGE)).min(self.good);
        (at..end).for_each(|at| {
            let page = self.page(at);
            self.present[page] = true;
        });
        end.saturating_sub(at)
    }

    /// Takes a page away now and then.
    fn steal(&mut self) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let page = (self.random >> 33) as usize % (4 * self.present.len());
        if let Some(present) = self.present.get_mut(page) {
            *present = false;
        }
    }
}

impl ByteSink for Paged<'_> {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn fault_in(&mut self, at: usize, len_bytes: usize) -> usize {
        self.fault(at, len_bytes)
    }

    fn put(&mut self, at: usize, from: IoSlice<'_>) -> usize {
        let len = self.present(at, from.len());
        from.copy_to(IoSliceMut::new(&mut self.bytes[at..at + len]));
        self.steal();
        len
    }
}

impl ByteSource for Paged<'_> {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn fault_in(&mut self, at: usize, len_bytes: usize) -> usize {
        self.fault(at, len_bytes)
    }

    fn take(&mut self, at: usize, to: IoSliceMut<'_>) -> usize {
        let len = self.present(at, to.len());
        IoSlice::new(&self.bytes[at..at + len]).copy_to(to);
        self.steal();
        len
    }
}

/// How a step hands over its memory.
#[derive(Debug, Clone)]
pub(crate) enum Memory {
    /// A list of slices of these lengths.
    List(Vec<usize>),
    /// Memory that begins at this place of a page, with a first bad page, and a seed.
    Paged(usize, usize, u64),
}

/// Reads `len` bytes by `read`, and compares them with what `expected` says is there.
pub(crate) fn check_read(
    memory: &Memory,
    len: usize,
    expected: &[u8],
    read: impl FnOnce(&mut dyn ByteSink) -> Result<usize, transom_guest::Errno>,
) {
    let there = expected.len().min(len);
    let (found, count, good) = match memory {
        Memory::List(lens) => {
            let mut found = vec![0xa5; len];
            let slices: Vec<_> = cut_mut(&mut found, lens).collect();
            let count = read(&mut transom_guest::memory::IoSlicesMut::new(&slices));
            (found, count, len)
        }
        &Memory::Paged(begin, bad, random) => {
            let mut sink = Paged::new(vec![0xa5; len], begin, bad, random);
            let count = read(&mut sink);
            let good = sink.good();
            (sink.bytes, count, good)
        }
    };
    // POSIX: what was transferred before the fault, or EFAULT if nothing was.
    let wanted = if there > 0 && good == 0 { Err(transom_guest::Errno::FAULT) } else { Ok(there.min(good)) };
    assert_eq!(count, wanted, "{memory:?}, {len} bytes of which {there} exist");
    let count = count.unwrap_or(0);
    assert!(found[..count] == expected[..count], "{memory:?}");
    assert!(found[good.min(len)..].iter().all(|&byte| byte == 0xa5), "bytes at bad addresses");
}

/// Writes `bytes` by `write`; returns how many of them the file has to have.
pub(crate) fn check_write(
    memory: &Memory,
    bytes: &[u8],
    write: impl FnOnce(&mut dyn ByteSource) -> Result<usize, transom_guest::Errno>,
) -> usize {
    let (count, good) = match memory {
        Memory::List(lens) => {
            let slices: Vec<_> = cut(bytes, lens).collect();
            (write(&mut transom_guest::memory::IoSlices::new(&slices)), bytes.len())
        }
        &Memory::Paged(begin, bad, random) => {
            let mut source = Paged::new(bytes.to_vec(), begin, bad, random);
            let good = source.good();
            (write(&mut source), good)
        }
    };
    let wanted = if good == 0 && !bytes.is_empty() { Err(transom_guest::Errno::FAULT) } else { Ok(good) };
    assert_eq!(count, wanted, "{memory:?}, {} bytes", bytes.len());
    good
}
