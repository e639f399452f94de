//! The network of a guest: none, the hosts that the caller allows, or all of it.
//!
//! A guest with allowed hosts has no network device. Its agent answers questions for the names, listens on the allowed
//! ports, and passes each connection through the channel `network` to this process ([`frame`], [`link`]), which decides
//! again ([`policy`]) and connects ([`host`]). So nothing else can be reached, whatever the guest does.
//!
//! Locks: that of a [`stream`] is taken with none held; those of [`link`] are not held while a stream's is.

mod address;
pub(crate) mod frame;
pub(crate) mod host;
pub(crate) mod link;
mod pattern;
mod policy;
mod refused;
mod resolve;
mod stream;

#[cfg(test)]
mod host_test;

use std::sync::Arc;

pub(crate) use self::pattern::LOCALHOST;
pub use self::{
    pattern::{AllowedHost, HostPattern},
    policy::Policy,
    refused::Refused,
};

/// What a guest can reach.
#[derive(Clone, Debug, Default)]
pub enum Network {
    /// Nothing; there is only the guest's own loopback device.
    #[default]
    Off,
    /// The hosts of a policy.
    Allowed(Arc<Policy>),
    /// What this machine can reach, this machine's own services among it, through QEMU's user-mode network.
    Whole,
}

impl Network {
    /// Returns what was refused so far.
    pub fn refused(&self) -> Vec<Refused> {
        match self {
            Self::Allowed(policy) => policy.refused(),
            Self::Off | Self::Whole => Vec::new(),
        }
    }

    /// Returns whether the guest has a network device.
    pub(crate) fn has_device(&self) -> bool {
        matches!(self, Self::Whole)
    }
}
