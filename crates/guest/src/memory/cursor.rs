//! The part of a sink or of a source that an operation is at.

use super::{ByteSink, ByteSource, IoSlice, IoSliceMut, Pieces, PiecesMut};
use crate::channel::Channel;

/// The most that is made present at once, so that a huge read does not fill memory before its first byte.
const FAULT_IN_MAX: usize = 1 << 20;

/// How often a copy is tried again that fails although its memory was made present: others may take it away.
const TRIES_MAX: u8 = 8;

/// Counts the attempts to copy one byte.
#[derive(Default)]
pub(crate) struct Patience(u8);

impl Patience {
    /// Returns whether to try again, given how many bytes were made present.
    pub(crate) fn allows(&mut self, present: usize) -> bool {
        self.0 += 1;
        present > 0 && self.0 < TRIES_MAX
    }
}

macro_rules! cursors {
    ($cursor:ident, $of:ident, $pieces:ident, $what:literal) => {
        #[doc = concat!("A part of a ", $what, ".")]
        pub(crate) struct $cursor<'a> {
            of: &'a mut dyn $of,
            at: usize,
            len: usize,
        }

        impl<'a> $cursor<'a> {
            #[doc = concat!("Begins with all of a ", $what, ".")]
            pub(crate) fn new(of: &'a mut dyn $of) -> Self {
                let len = of.len_bytes();
                Self { of, at: 0, len }
            }

            pub(crate) fn len(&self) -> usize {
                self.len
            }

            /// Returns at most `len` bytes of it, from `from` on.
            pub(crate) fn part(&mut self, from: usize, len: usize) -> $cursor<'_> {
                let from = from.min(self.len);
                $cursor { of: &mut *self.of, at: self.at + from, len: len.min(self.len - from) }
            }

            /// Returns all of it but the first `from` bytes.
            pub(crate) fn rest(&mut self, from: usize) -> $cursor<'_> {
                self.part(from, usize::MAX)
            }

            /// Makes its first bytes present; returns their number. No lock is held.
            pub(crate) fn fault_in(&mut self) -> usize {
                let len = self.len.min(FAULT_IN_MAX);
                self.of.fault_in(self.at, len).min(len)
            }

            /// Returns it as slices, if it is memory that cannot fault.
            pub(crate) fn pieces(&self) -> Option<$pieces<'_>> {
                self.of.slices().map(|slices| $pieces::new(slices, self.at, self.len))
            }

            /// Returns the first bytes that one message carries in place, at most `len_max`. Returns `None` if they
            /// have to be copied.
            pub(crate) fn in_place(&self, channel: &dyn Channel, len_max: usize) -> Option<$pieces<'_>> {
                let pieces = self.pieces()?.first(len_max);
                if pieces.is_plain() {
                    return Some(pieces);
                }
                let len = channel.in_place_len(&mut pieces.places());
                (len > 0).then(|| pieces.first(len))
            }
        }
    };
}

cursors!(Target, ByteSink, PiecesMut, "sink");
cursors!(Origin, ByteSource, Pieces, "source");

impl Target<'_> {
    /// Copies `from` to its beginning, without waiting; returns how many bytes were copied.
    pub(crate) fn put(&mut self, from: IoSlice<'_>) -> usize {
        let from = from.part(0..self.len);
        if from.is_empty() { 0 } else { self.of.put(self.at, from).min(from.len()) }
    }

    /// Copies `from` to its beginning; returns how many bytes were copied, fewer only at a bad address. No lock is
    /// held.
    pub(crate) fn put_all(&mut self, from: IoSlice<'_>) -> usize {
        let from = from.part(0..self.len);
        let (mut done, mut patience) = (0, Patience::default());
        while done < from.len() {
            let mut rest = self.rest(done);
            match rest.put(from.part(done..from.len())) {
                0 if patience.allows(rest.fault_in()) => {}
                0 => break,
                count => (done, patience) = (done + count, Patience::default()),
            }
        }
        done
    }
}

impl Origin<'_> {
    /// Copies its first bytes to `to`, without waiting; returns how many were copied.
    pub(crate) fn take(&mut self, to: IoSliceMut<'_>) -> usize {
        let to = to.part(0..self.len);
        if to.is_empty() { 0 } else { self.of.take(self.at, to).min(to.len()) }
    }

    /// Returns whether it is memory that cannot fault.
    pub(crate) fn is_present(&self) -> bool {
        self.of.slices().is_some()
    }

    /// Returns whether nobody changes the bytes.
    pub(crate) fn is_stable(&self) -> bool {
        self.pieces().is_some_and(|pieces| pieces.is_stable())
    }
}
