//! Translation of uids and gids between guest and host, by the rules of `--translate-uid` and `--translate-gid`.
//!
//! The two directions are independent: a rule for requests does not affect replies, except [`Rule::Map`], which covers
//! both. An id that no rule names stays unchanged. [`ids`] has the types that keep the two sides apart, [`rule`] the
//! syntax of rules, [`table`] the lookup. Maps are immutable, so there are no locks.

pub mod ids;
pub mod rule;
mod table;

pub use ids::{GuestGid, GuestUid, HostGid, HostUid, Id};
pub use rule::{Rule, RuleError};
pub use table::MapError;

use std::marker::PhantomData;

use rustix::io::Errno;

use table::{Table, Target};

/// Translates uids.
pub type UidMap = IdMap<GuestUid, HostUid>;
/// Translates gids.
pub type GidMap = IdMap<GuestGid, HostGid>;

/// Translates one kind of id, with a table for each direction.
#[derive(Debug, Clone)]
pub struct IdMap<G, H> {
    to_host: Table,
    to_guest: Table,
    ids: PhantomData<fn(G) -> H>,
}

/// The translation of owners and callers.
#[derive(Debug, Clone, Default)]
pub struct OwnerMap {
    /// Translates uids.
    pub uids: UidMap,
    /// Translates gids.
    pub gids: GidMap,
}

impl<G: Id, H: Id> IdMap<G, H> {
    /// Creates a map from `rules`, whose order does not matter.
    ///
    /// # Errors
    ///
    /// If two rules name the same source id, or a range extends past the last id.
    pub fn new(rules: &[Rule]) -> Result<Self, MapError> {
        let (mut to_host, mut to_guest) = (Table::builder("guest to host"), Table::builder("host to guest"));
        for rule in rules {
            match *rule {
                Rule::Guest { guest, host, count } => to_host.add(rule, guest, count, Target::From(host))?,
                Rule::Host { host, guest, count } => to_guest.add(rule, host, count, Target::From(guest))?,
                Rule::SquashGuest { guest, host, count } => to_host.add(rule, guest, count, Target::One(host))?,
                Rule::SquashHost { host, guest, count } => to_guest.add(rule, host, count, Target::One(guest))?,
                Rule::ForbidGuest { guest, count } => to_host.add(rule, guest, count, Target::Forbidden)?,
                Rule::Map { guest, host, count } => {
                    to_host.add(rule, guest, count, Target::From(host))?;
                    to_guest.add(rule, host, count, Target::From(guest))?;
                }
            }
        }
        Ok(Self { to_host: to_host.build()?, to_guest: to_guest.build()?, ids: PhantomData })
    }

    /// Translates an id in a request to the host's. Errors: EPERM if a rule forbids it.
    pub fn to_host(&self, id: G) -> Result<H, Errno> {
        self.to_host.translate(id.number()).map(H::from).ok_or(Errno::PERM)
    }

    /// Translates an id of the host to the guest's, for a reply.
    pub fn to_guest(&self, id: H) -> G {
        // No rule forbids host ids, so the table always has a result.
        G::from(self.to_guest.translate(id.number()).unwrap_or(id.number()))
    }

    /// Returns whether the map changes nothing.
    pub fn is_identity(&self) -> bool {
        self.to_host.is_empty() && self.to_guest.is_empty()
    }
}

impl<G, H> Default for IdMap<G, H> {
    /// Returns the map that changes nothing.
    fn default() -> Self {
        Self { to_host: Table::default(), to_guest: Table::default(), ids: PhantomData }
    }
}

impl OwnerMap {
    /// Returns whether neither map changes anything.
    pub fn is_identity(&self) -> bool {
        self.uids.is_identity() && self.gids.is_identity()
    }
}

#[cfg(test)]
#[path = "idmap_test.rs"]
mod idmap_test;
