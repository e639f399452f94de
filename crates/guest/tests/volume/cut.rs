//! Bytes cut into slices, for tests of lists. The unit tests of `memory` use it too.

use super::{IoSlice, IoSliceMut};

/// Cuts `bytes` into slices of these lengths; the last one is the rest.
pub(crate) fn cut<'a>(mut bytes: &'a [u8], lens: &'a [usize]) -> impl Iterator<Item = IoSlice<'a>> {
    lens.iter().chain([&usize::MAX]).map(move |len| {
        let (first, rest) = bytes.split_at((*len).min(bytes.len()));
        bytes = rest;
        IoSlice::new(first)
    })
}

/// As [`cut`], for room.
pub(crate) fn cut_mut<'a>(mut bytes: &'a mut [u8], lens: &'a [usize]) -> impl Iterator<Item = IoSliceMut<'a>> {
    lens.iter().chain([&usize::MAX]).map(move |len| {
        let bytes_here = core::mem::take(&mut bytes);
        let (first, rest) = bytes_here.split_at_mut((*len).min(bytes_here.len()));
        bytes = rest;
        IoSliceMut::new(first)
    })
}
