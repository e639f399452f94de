//! Carries a session over to another daemon: [`save`] describes it, [`load`] goes on with one.
//!
//! Inodes travel as [`paths`] or as file handles. The guest keeps its numbers of inodes and open files: [`aliases`]
//! translates the former, [`Handles`](super::handles::Handles) adopts the latter. Numbers given out later are of a
//! generation that the guest has not seen. To another process of this host, a session is handed over with its open
//! descriptors ([`hand_over`]). [`recover`] goes on with the session of a process that has died.

mod aliases;
mod hand_over;
mod load;
mod paths;
mod recover;
mod save;

pub(super) use aliases::Aliases;

use super::Passthrough;

/// Bits of a number below its generation.
const GENERATION_SHIFT: u32 = 32;

impl Passthrough {
    /// Returns why no session of this share can be carried over, if that is so.
    pub fn migration_obstacle(&self) -> Option<&'static str> {
        let obstacles = [
            (self.dax.is_some(), "a share with a DAX window cannot be migrated: mappings do not travel"),
            (self.group.is_some(), "a share in a coherence group cannot be migrated: its table is of this host"),
            (self.replays.is_some(), "a share with --events cannot be migrated: what the agent knows does not travel"),
            (
                self.config.is_layered,
                "an overlay cannot be migrated: the guest's changes are in a directory of this host",
            ),
            (self.journal.is_some(), "a share with --resilient cannot be migrated: the journal would have to follow"),
            (self.quota.is_some(), "a share with a quota cannot be migrated: what the guest has added does not travel"),
            (self.hidden.is_some(), "a share with hidden paths cannot be migrated: other inodes may be hidden here"),
        ];
        obstacles.into_iter().find_map(|(is_so, obstacle)| is_so.then_some(obstacle))
    }

    /// Returns why no session of this share can be handed over to another process of this host, if that is so.
    pub fn hand_over_obstacle(&self) -> Option<&'static str> {
        let obstacles = [
            (self.dax.is_some(), "a share with a DAX window cannot be upgraded: the front end keeps its mappings"),
            (
                self.group.is_some(),
                "a share in a coherence group cannot be upgraded: the group sees each daemon join once",
            ),
            (self.replays.is_some(), "a share with --events cannot be upgraded: what the agent knows does not travel"),
            (self.quota.is_some(), "a share with a quota cannot be upgraded: what the guest has added does not travel"),
            (self.config.is_layered, "an overlay cannot be upgraded: two daemons cannot have it mounted"),
        ];
        obstacles.into_iter().find_map(|(is_so, obstacle)| is_so.then_some(obstacle))
    }
}
