//! Lists of slices, and the part of a list that one message carries.

use core::ptr::NonNull;

use super::{ByteSink, ByteSource, IoSlice, IoSliceMut};

macro_rules! lists {
    ($list:ident, $pieces:ident, $slice:ident, $what:literal) => {
        #[doc = concat!("A list of slices, ", $what, ".")]
        #[derive(Debug)]
        pub struct $list<'a> {
            slices: &'a [$slice<'a>],
            len_bytes: usize,
            /// The slice that was used last, and where in the list it begins, in bytes.
            last: (usize, usize),
        }

        impl<'a> $list<'a> {
            /// Borrows the list. It may be empty, and so may slices of it.
            pub fn new(slices: &'a [$slice<'a>]) -> Self {
                let len_bytes = slices.iter().fold(0, |sum: usize, slice| sum.saturating_add(slice.len()));
                Self { slices, len_bytes, last: (0, 0) }
            }

            /// Returns the rest of the slice in which byte `at` lies, if there is one.
            fn rest(&mut self, at: usize) -> Option<$slice<'a>> {
                // Accesses go forward, so the search begins where the last one ended.
                if at < self.last.1 {
                    self.last = (0, 0);
                }
                loop {
                    let (index, begin) = self.last;
                    let slice = self.slices.get(index)?;
                    if at - begin < slice.len() {
                        return Some(slice.part(at - begin..slice.len()));
                    }
                    self.last = (index + 1, begin.checked_add(slice.len())?);
                }
            }
        }

        #[doc = concat!("A part of a list of slices, ", $what, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $pieces<'a> {
            slices: &'a [$slice<'a>],
            /// Bytes of the list before the part.
            skip: usize,
            len_bytes: usize,
        }

        impl<'a> $pieces<'a> {
            /// Takes `len_bytes` from byte `skip` on; they are in the list.
            pub(crate) fn new(slices: &'a [$slice<'a>], skip: usize, len_bytes: usize) -> Self {
                Self { slices, skip, len_bytes }
            }

            /// Returns the length in bytes.
            pub fn len_bytes(&self) -> usize {
                self.len_bytes
            }

            /// Returns its first bytes, at most `len_max`.
            pub(crate) fn first(&self, len_max: usize) -> Self {
                Self { len_bytes: self.len_bytes.min(len_max), ..*self }
            }

            /// Returns whether it is one slice that nobody else accesses.
            pub(crate) fn is_plain(&self) -> bool {
                // A list that is shorter than its sink said is measured piece by piece.
                let is_whole = |slice: &$slice<'_>| self.skip.saturating_add(self.len_bytes) <= slice.len();
                matches!(self.slices, [slice] if slice.is_stable() && is_whole(slice))
            }

            /// Returns address and length of each piece that has bytes.
            pub(crate) fn places(&self) -> impl Iterator<Item = (NonNull<u8>, usize)> {
                self.iter().map(|slice| (slice.start(), slice.len()))
            }

            /// Returns its slices that have bytes, in order.
            pub fn iter(&self) -> impl Iterator<Item = $slice<'a>> + use<'a> {
                let (mut skip, mut left) = (self.skip, self.len_bytes);
                self.slices.iter().filter_map(move |slice| {
                    let begin = skip.min(slice.len());
                    let len = (slice.len() - begin).min(left);
                    skip -= begin;
                    left -= len;
                    (len > 0).then(|| slice.part(begin..begin + len))
                })
            }
        }
    };
}

lists!(IoSlices, Pieces, IoSlice, "to read from");
lists!(IoSlicesMut, PiecesMut, IoSliceMut, "to write to");

impl ByteSource for IoSlices<'_> {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn fault_in(&mut self, _: usize, len_bytes: usize) -> usize {
        len_bytes
    }

    fn take(&mut self, at: usize, to: IoSliceMut<'_>) -> usize {
        let mut done = 0;
        while done < to.len() {
            let Some(slice) = self.rest(at.saturating_add(done)) else { break };
            done += slice.copy_to(to.part(done..to.len()));
        }
        done
    }

    fn slices(&self) -> Option<&[IoSlice<'_>]> {
        Some(self.slices)
    }
}

impl ByteSink for IoSlicesMut<'_> {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn fault_in(&mut self, _: usize, len_bytes: usize) -> usize {
        len_bytes
    }

    fn put(&mut self, at: usize, from: IoSlice<'_>) -> usize {
        let mut done = 0;
        while done < from.len() {
            let Some(slice) = self.rest(at.saturating_add(done)) else { break };
            done += from.part(done..from.len()).copy_to(slice);
        }
        done
    }

    fn slices(&self) -> Option<&[IoSliceMut<'_>]> {
        Some(self.slices)
    }
}

impl<'a> PiecesMut<'a> {
    /// Copies `bytes` to the beginning, as far as there is room: for channels that have no device.
    pub fn write(&self, bytes: &[u8]) {
        let mut rest = IoSlice::new(bytes);
        for slice in self.iter() {
            rest = rest.part(rest.copy_to(slice)..rest.len());
        }
    }
}

impl<'a> Pieces<'a> {
    /// Returns whether nobody changes the slices.
    pub(crate) fn is_stable(&self) -> bool {
        self.slices.iter().all(|slice| slice.is_stable())
    }

    /// Copies the bytes to `bytes`, as far as there is room: for channels that have no device.
    pub fn read(&self, bytes: &mut [u8]) {
        let mut room = IoSliceMut::new(bytes);
        for slice in self.iter() {
            room = room.part(slice.copy_to(room)..room.len());
        }
    }
}
