//! The identifiers of a FUSE session, each a type of its own.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U64};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:#x})", stringify!($name), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl From<U64> for $name {
            fn from(raw: U64) -> Self {
                Self(raw.get())
            }
        }

        impl From<$name> for U64 {
            fn from(id: $name) -> Self {
                U64::new(id.0)
            }
        }
    };
}

id! {
    /// An inode of the session, assigned by the server and never reused.
    NodeId
}
id! {
    /// An open file or directory stream, assigned by the server with OPEN, OPENDIR, CREATE or TMPFILE.
    Handle
}
id! {
    /// A request in flight, assigned by the driver and referred to by INTERRUPT.
    Unique
}

impl NodeId {
    /// The root of the share (`FUSE_ROOT_ID`).
    pub const ROOT: Self = Self(1);
}

/// The owner of a lock or of an open file, chosen by the driver and opaque to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct LockOwner(pub U64);
