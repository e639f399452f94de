//! Which features of a share go together with which way of surviving: live migration, an upgrade in place, the death of
//! the daemon.
//!
//! [`TABLE`] is the one place that says so. Daemons refuse with its reasons ([`Obstacle`]), when they start or when
//! they are asked; the page of the documentation is made from it, and a test starts each pair.

use std::fmt::{self, Display};

/// A way in which a session goes on at another daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Live migration and snapshots of the guest.
    Migration,
    /// `--upgradable`: another version of the daemon, on the same host.
    Upgrade,
    /// `--resilient`: another process, after the one that served has died.
    Restart,
}

/// A feature that holds state outside of the session, or that may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// A DAX window.
    Window,
    /// An overlay of the shared directory.
    Overlay,
    /// Changes of the host are announced to an agent in the guest.
    Events,
    /// Changes of the host are told over the notification queue.
    Notifications,
    /// Changes of the host are counted.
    HostChanges,
    /// A coherence group.
    CoherenceGroup,
    /// POSIX locks are taken on the host.
    PosixLocks,
    /// Locks of flock(2) are taken on the host.
    Flock,
    /// The guest writes its cached pages back later.
    Writeback,
    /// A limit on what the guest adds.
    Quota,
    /// Hidden paths.
    HiddenPaths,
    /// A journal.
    Journal,
}

/// Whether a feature goes together with a way of surviving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Works,
    /// It does, with a limit.
    Limited(&'static str),
    /// The daemon serves, and refuses when the session is to go on elsewhere. It does not offer migration at all.
    Refused(&'static str),
    /// The daemon does not start with both.
    Excluded(&'static str),
}
use Verdict::{Excluded, Limited, Refused, Works};

/// What a feature goes together with.
#[derive(Debug)]
pub struct Row {
    /// The feature.
    pub feature: Feature,
    /// The option that turns it on.
    pub option: &'static str,
    migration: Verdict,
    upgrade: Verdict,
    restart: Verdict,
}

/// A reason against a way, with the option that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obstacle {
    /// The option that turns the feature on.
    pub option: &'static str,
    /// The way that the feature does not go together with.
    pub way: Way,
    /// Why.
    pub reason: &'static str,
}

/// All features.
pub const TABLE: &[Row] = &[
    Row {
        feature: Feature::Window,
        option: "--dax-window",
        migration: Refused("mappings do not travel"),
        upgrade: Refused("the front end keeps its mappings, and the next daemon does not know them"),
        restart: Excluded("the journal does not record mappings"),
    },
    Row {
        feature: Feature::Overlay,
        option: "--overlay",
        migration: Refused("the guest's changes are in a directory of this host"),
        upgrade: Excluded("two daemons cannot have one overlay mounted"),
        restart: Excluded("this combination is not supported"),
    },
    Row {
        feature: Feature::Events,
        option: "--events",
        migration: Refused("what the agent knows does not travel"),
        upgrade: Refused("what the agent knows does not travel"),
        restart: Excluded("the journal does not record what the agent knows"),
    },
    Row {
        feature: Feature::Notifications,
        option: "--notification-queue",
        migration: Refused("changes that the guest has not been told do not travel"),
        upgrade: Refused("changes that the guest has not been told do not travel"),
        restart: Excluded("the journal does not record what the guest has been told"),
    },
    Row {
        feature: Feature::HostChanges,
        option: "--host-changes",
        migration: Limited("the counts begin at 0"),
        upgrade: Limited("the counts begin at 0"),
        restart: Excluded("changes during a death would not be counted"),
    },
    Row {
        feature: Feature::CoherenceGroup,
        option: "--coherence-group",
        migration: Refused("the group's table is of this host"),
        upgrade: Refused("the group sees each daemon join once"),
        restart: Excluded("the group gives up a member that dies"),
    },
    Row {
        feature: Feature::PosixLocks,
        option: "--posix-lock",
        migration: Limited("refused while the guest holds or waits for a lock, unless --migration-locks=carry"),
        upgrade: Limited("refused while the guest waits for a lock"),
        restart: Works,
    },
    Row {
        feature: Feature::Flock,
        option: "--flock",
        migration: Limited("refused while the guest has a file open"),
        upgrade: Limited("refused while the guest waits for a lock"),
        restart: Works,
    },
    Row { feature: Feature::Writeback, option: "--writeback", migration: Works, upgrade: Works, restart: Works },
    Row {
        feature: Feature::Quota,
        option: "--quota",
        migration: Refused("what the guest has added does not travel"),
        upgrade: Excluded("the next daemon does not know what the guest has added"),
        restart: Excluded("the journal does not record what the guest has added"),
    },
    Row {
        feature: Feature::HiddenPaths,
        option: "--hide",
        migration: Refused("other inodes may be hidden at the destination"),
        upgrade: Works,
        restart: Works,
    },
    Row {
        feature: Feature::Journal,
        option: "--resilient",
        migration: Refused("the journal would have to follow"),
        upgrade: Refused("the journal is for this version alone: restart the daemon when the guest is down"),
        restart: Works,
    },
];

impl Row {
    /// Returns whether the feature goes together with `way`.
    pub fn verdict(&self, way: Way) -> Verdict {
        match way {
            Way::Migration => self.migration,
            Way::Upgrade => self.upgrade,
            Way::Restart => self.restart,
        }
    }
}

impl Feature {
    /// Returns why the feature does not go together with `way`, if so.
    pub fn obstacle(self, way: Way) -> Option<Obstacle> {
        let row = self.row()?;
        match row.verdict(way) {
            Refused(reason) | Excluded(reason) => Some(Obstacle { option: row.option, way, reason }),
            Works | Limited(_) => None,
        }
    }

    /// Returns why a daemon does not start with both the feature and `way`, if so.
    pub fn exclusion(self, way: Way) -> Option<Obstacle> {
        let is_excluded = matches!(self.row()?.verdict(way), Excluded(_));
        self.obstacle(way).filter(|_| is_excluded)
    }

    fn row(self) -> Option<&'static Row> {
        TABLE.iter().find(|row| row.feature == self)
    }
}

impl Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, way, reason } = self;
        match way {
            Way::Migration => write!(f, "a share with {option} cannot be migrated: {reason}"),
            Way::Upgrade => write!(f, "a daemon with {option} cannot be upgraded: {reason}"),
            Way::Restart => write!(f, "a share with {option} does not survive its daemon: {reason}"),
        }
    }
}

#[cfg(test)]
#[path = "survival_test.rs"]
mod survival_test;
