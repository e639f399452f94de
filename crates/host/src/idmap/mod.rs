//! Translation of uids and gids between guest and host, by rules as `--translate-uid` and `--translate-gid` take them.
//!
//! The two directions are independent: a rule for requests says nothing about replies, but [`Rule::Map`], which says
//! both. An id that no rule names stays the number it is. [`ids`] has the types that keep the two sides apart, [`rule`]
//! the language, [`table`] the lookup. Maps do not change after they are made; there are no locks.

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

/// Translates one kind of id, each way by a table of its own.
#[derive(Debug, Clone)]
pub struct IdMap<G, H> {
    to_host: Table,
    to_guest: Table,
    ids: PhantomData<fn(G) -> H>,
}

/// The translation of a file's or caller's owner.
#[derive(Debug, Clone, Default)]
pub struct OwnerMap {
    /// For uids.
    pub uids: UidMap,
    /// For gids.
    pub gids: GidMap,
}

impl<G: Id, H: Id> IdMap<G, H> {
    /// Creates a map by `rules`; their order does not matter.
    ///
    /// # Errors
    ///
    /// Two rules name the same id as their source, or a range passes the last id.
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

    /// Returns the host's id for one in a request. Errors: EPERM if a rule forbids it.
    pub fn to_host(&self, id: G) -> Result<H, Errno> {
        self.to_host.translate(id.number()).map(H::from).ok_or(Errno::PERM)
    }

    /// Returns the guest's id for one in a reply.
    pub fn to_guest(&self, id: H) -> G {
        // No rule forbids ids of the host, so that the table always has an answer.
        G::from(self.to_guest.translate(id.number()).unwrap_or(id.number()))
    }

    /// Returns true if no rule changes anything.
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
    /// Returns true if no rule changes anything.
    pub fn is_identity(&self) -> bool {
        self.uids.is_identity() && self.gids.is_identity()
    }
}

#[cfg(test)]
#[path = "idmap_test.rs"]
mod idmap_test;
