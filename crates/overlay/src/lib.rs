//! What a guest has changed in a directory of this host, while the directory stayed as it is: the changes are listed,
//! written into the directory, or thrown away.
//!
//! `transomd --overlay` mounts the kernel's overlayfs over a shared directory (the lower layer); everything that the
//! guest changes is in a second directory (the upper layer). [`Overlay`] holds both: [`place`] says where the upper
//! layer is and who uses it, [`origin`] of which directory it is, [`record`] what the directory was like before,
//! [`walk`] compares the two layers, [`commit`] and [`clear`] change them, and [`patch`] shows a change as text.
//!
//! The guest decides what is in the upper layer, so neither layer is ever walked through a symbolic link: see [`tree`].
//! A commit can be stopped at any moment. What a guest would see through both layers stays the same while changes move
//! from the upper layer to the lower one, so a commit that was stopped is finished by doing it again.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod apply;
mod attributes;
mod clear;
mod commit;
mod conflict;
mod copy;
mod error;
mod hidden;
mod intent;
mod layers;
mod meta;
mod notes;
mod origin;
mod patch;
mod place;
mod record;
mod state;
mod tree;
mod walk;

#[cfg(test)]
mod crash_test;
#[cfg(test)]
mod directory_test;
#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod layers_test;
#[cfg(test)]
mod origin_test;
#[cfg(test)]
mod overlay_test;
#[cfg(test)]
mod patch_test;
#[cfg(test)]
mod programs_test;
#[cfg(test)]
mod support;

pub use commit::Committed;
pub use conflict::Conflict;
pub use error::{Error, Result};
pub use meta::{Kind, Meta};
pub use patch::{controls_display, patch};
pub use place::{Overlay, containing, visit_all};
pub use walk::{Change, Difference, Sum};
