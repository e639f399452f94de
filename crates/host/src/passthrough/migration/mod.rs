//! Carries a session over to another daemon: [`save`] describes it, [`load`] goes on with one.
//!
//! Inodes travel as [`paths`] or as file handles. The guest keeps its numbers of inodes and open files: [`aliases`]
//! translates the former, [`Handles`](super::handles::Handles) adopts the latter. Numbers given out later are of a
//! generation that the guest has not seen. To another process of this host, a session is handed over with its open
//! descriptors ([`hand_over`]). [`recover`] goes on with the session of a process that has died.

mod aliases;
mod find;
mod hand_over;
mod load;
mod locks;
mod paths;
mod recover;
mod save;

pub(super) use aliases::Aliases;

use super::Passthrough;
use crate::survival::{Feature, Obstacle, Way};

/// Bits of a number below its generation.
const GENERATION_SHIFT: u32 = 32;

impl Passthrough {
    /// Returns why no session of this share can be carried over, if that is so.
    pub fn migration_obstacle(&self) -> Option<Obstacle> {
        self.obstacle(Way::Migration)
    }

    /// Returns why no session of this share can be handed over to another process of this host, if that is so.
    pub fn hand_over_obstacle(&self) -> Option<Obstacle> {
        self.obstacle(Way::Upgrade)
    }

    fn obstacle(&self, way: Way) -> Option<Obstacle> {
        let features = [
            (self.dax.is_some(), Feature::Window),
            (self.config.is_layered, Feature::Overlay),
            (self.replays.is_some(), Feature::Events),
            (self.config.notifications.is_some(), Feature::Notifications),
            (self.group.is_some(), Feature::CoherenceGroup),
            (self.quota.is_some(), Feature::Quota),
            (self.hidden.is_some(), Feature::HiddenPaths),
            (self.journal.is_some(), Feature::Journal),
        ];
        features.into_iter().filter(|(is_used, _)| *is_used).find_map(|(_, feature)| feature.obstacle(way))
    }
}
