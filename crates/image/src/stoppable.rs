//! Readers that follow what is read, and end when somebody stops the unpacking.

use std::io::{self, Read, Seek, SeekFrom};

use crate::Watch;

/// A stream that fails once its [`Watch`] is cancelled. [`Store::open`](crate::Store::open) then returns
/// [`Error::Cancelled`](crate::Error::Cancelled), whatever has become of the error on its way.
pub(crate) struct Stoppable<'a, R> {
    pub(crate) from: R,
    pub(crate) watch: &'a dyn Watch,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.watch.is_cancelled() {
            return Err(io::Error::other("stopped"));
        }
        self.from.read(buffer)
    }
}

impl<R: Seek> Seek for Stoppable<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.from.seek(to)
    }
}

/// A stream that tells what is read.
pub(crate) struct Observed<R, F> {
    pub(crate) from: R,
    pub(crate) observe: F,
}

impl<R: Read, F: FnMut(&[u8])> Read for Observed<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(buffer)?;
        (self.observe)(&buffer[..len]);
        Ok(len)
    }
}
