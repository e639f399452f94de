//! The trailer by which a daemon tells a guest how the guest's own request has raised slots of the version table.
//!
//! An extension of FUSE that only guests with a version table and daemons of a coherence group speak. Both sides agree
//! on it at INIT: by [`InitFlags::OWN_CHANGES`](crate::ops::init::InitFlags::OWN_CHANGES) together with [`MAGIC`] in
//! bytes that FUSE leaves zero. A later version of FUSE may define the flag; without these bytes, it means what FUSE
//! says.
//!
//! A guest that wants trailers offers [`LEN_MAX`] bytes more room than the reply needs. A daemon may send a trailer
//! after any reply of fixed length to a request that changes something; where it sends none, the guest has to take its
//! own changes for those of others.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// `TRANSOWN`, in the last 8 bytes of the arguments of INIT and of the reply to it.
pub const MAGIC: [u8; 8] = *b"TRANSOWN";

/// The most slots of one trailer: two directories, two inodes with names, two of open files, and some to spare.
pub const COUNT_MAX: usize = 8;

/// The length of the longest trailer in bytes.
pub const LEN_MAX: usize = size_of::<Head>() + COUNT_MAX * size_of::<OwnChange>();

/// Begins a trailer.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    /// The number of [`OwnChange`]s that follow, 1 to [`COUNT_MAX`].
    count: U32,
    /// Zero.
    padding: U32,
}
const _: () = assert!(size_of::<Head>() == 8);

/// A slot that the request has raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OwnChange {
    /// The number of the slot.
    pub slot: U32,
    /// Zero.
    pub padding: U32,
    /// The stamp that the slot had.
    pub previous: U64,
    /// The stamp that it has been raised to. All stamps since `previous` are of the request.
    pub new: U64,
}
const _: () = assert!(size_of::<OwnChange>() == 24);

/// A trailer, to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Trailer {
    bytes: [u8; LEN_MAX],
    count: usize,
}

impl Default for Trailer {
    fn default() -> Self {
        Self { bytes: [0; LEN_MAX], count: 0 }
    }
}

impl Trailer {
    /// Adds a slot that was raised in one step. A slot that it has keeps its begin if the steps meet, and otherwise has
    /// the new step alone. One for which there is no room is left out: the guest then takes the change for another's.
    pub fn push(&mut self, slot: u32, previous: u64, new: u64) {
        let change = OwnChange { slot: slot.into(), padding: 0.into(), previous: previous.into(), new: new.into() };
        if let Some(known) = self.changes_mut().iter_mut().find(|known| known.slot == change.slot) {
            let begin = if known.new == previous { known.previous } else { change.previous };
            *known = OwnChange { previous: begin, ..change };
        } else if self.count < COUNT_MAX {
            self.bytes[len(self.count)..len(self.count + 1)].copy_from_slice(change.as_bytes());
            self.count += 1;
            self.bytes[..4].copy_from_slice(&(self.count as u32).to_le_bytes());
        }
    }

    fn changes_mut(&mut self) -> &mut [OwnChange] {
        let bytes = &mut self.bytes[size_of::<Head>()..len(self.count)];
        <[OwnChange]>::mut_from_bytes(bytes).expect("a whole number of changes, without alignment")
    }

    /// Returns its bytes: an empty slice if it names no slot.
    pub fn as_bytes(&self) -> &[u8] {
        if self.count == 0 { &[] } else { &self.bytes[..len(self.count)] }
    }
}

/// Parses what follows the body of a reply. Returns `None` unless it is exactly one trailer.
pub fn parse(bytes: &[u8]) -> Option<&[OwnChange]> {
    let (head, rest) = Head::ref_from_prefix(bytes).ok()?;
    let count = head.count.get() as usize;
    if !(1..=COUNT_MAX).contains(&count) || head.padding != 0 || bytes.len() != len(count) {
        return None;
    }
    let changes = <[OwnChange]>::ref_from_bytes(rest).ok()?;
    changes.iter().all(|change| change.padding == 0).then_some(changes)
}

/// Returns the length of a trailer with `count` slots, in bytes.
const fn len(count: usize) -> usize {
    size_of::<Head>() + count * size_of::<OwnChange>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trailer(count: u32) -> Trailer {
        let mut trailer = Trailer::default();
        (0..count).for_each(|at| trailer.push(at, u64::from(at) + 10, u64::from(at) + 20));
        trailer
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let mut trailer = Trailer::default();
        trailer.push(0x0403_0201, 5, 0x0807_0605_0403_0201);
        let expected = [
            &[1, 0, 0, 0, 0, 0, 0, 0][..],
            &[1, 2, 3, 4, 0, 0, 0, 0],
            &[5, 0, 0, 0, 0, 0, 0, 0],
            &[1, 2, 3, 4, 5, 6, 7, 8],
        ];
        assert!(trailer.as_bytes().iter().eq(expected.into_iter().flatten()));
    }

    #[test]
    fn steps_of_a_slot_are_joined_if_they_meet() {
        let mut trailer = trailer(2);
        trailer.push(1, 21, 30);
        trailer.push(0, 25, 31);
        let read = parse(trailer.as_bytes()).unwrap().iter().map(|change| (change.previous.get(), change.new.get()));
        assert!(read.eq([(25, 31), (11, 30)]));
    }

    #[test]
    fn what_is_sent_is_read() {
        assert_eq!(trailer(0).as_bytes(), [] as [u8; 0]);
        for count in 1..=COUNT_MAX as u32 {
            let sent = trailer(count);
            let read = parse(sent.as_bytes()).unwrap();
            assert_eq!(read.len(), count as usize);
            let is_sent = |(at, change): (usize, &OwnChange)| {
                let at = at as u64;
                (change.slot.get().into(), change.previous.get(), change.new.get()) == (at, at + 10, at + 20)
            };
            assert!(read.iter().enumerate().all(is_sent));
        }
        assert_eq!(trailer(20).as_bytes(), trailer(COUNT_MAX as u32).as_bytes(), "what has no room is left out");
    }

    #[test]
    fn what_is_not_exactly_one_trailer_is_refused() {
        let sent = trailer(2);
        let good = sent.as_bytes();
        for len in 0..good.len() {
            assert_eq!(parse(&good[..len]), None, "cut off after {len} bytes");
        }
        let mut longer = [0; LEN_MAX + 1];
        longer[..good.len()].copy_from_slice(good);
        for len in good.len() + 1..longer.len() {
            assert_eq!(parse(&longer[..len]), None, "{len} bytes");
        }
        for (at, byte) in [(0, 0), (0, 1), (0, 3), (0, 9), (0, 255), (3, 128), (4, 1), (7, 1), (12, 1), (39, 1)] {
            let mut bad = [0; 56];
            bad.copy_from_slice(good);
            bad[at] = byte;
            assert_eq!(parse(&bad), None, "byte {at} is {byte}");
        }
    }
}
