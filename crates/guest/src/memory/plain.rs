//! A slice as a list of one.

use core::slice;

use super::{ByteSink, ByteSource, IoSlice, IoSliceMut};

impl ByteSource for IoSlice<'_> {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn fault_in(&mut self, _: usize, len_bytes: usize) -> usize {
        len_bytes
    }

    fn take(&mut self, at: usize, to: IoSliceMut<'_>) -> usize {
        self.part(at..self.len()).copy_to(to)
    }

    fn slices(&self) -> Option<&[IoSlice<'_>]> {
        Some(slice::from_ref(self))
    }
}

impl ByteSink for IoSliceMut<'_> {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn fault_in(&mut self, _: usize, len_bytes: usize) -> usize {
        len_bytes
    }

    fn put(&mut self, at: usize, from: IoSlice<'_>) -> usize {
        from.copy_to(self.part(at..self.len()))
    }

    fn slices(&self) -> Option<&[IoSliceMut<'_>]> {
        Some(slice::from_ref(self))
    }
}
