//! Uids and gids of the guest and of the host: four types, so that no number crosses over untranslated.

use std::fmt;

/// A uid or gid of one side.
pub trait Id: Copy + From<u32> {
    /// Returns the number.
    fn number(self) -> u32;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }

        impl Id for $name {
            fn number(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A uid in requests and replies.
    GuestUid
}
id! {
    /// A uid in the host's system calls.
    HostUid
}
id! {
    /// A gid in requests and replies.
    GuestGid
}
id! {
    /// A gid in the host's system calls.
    HostGid
}
