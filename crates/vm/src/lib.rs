//! Runs commands in Linux guests with shared directories: the library behind `transom run`.
//!
//! A [`GuestSpec`] says what to boot and what to run in it; [`run()`] starts one daemon for each share, boots the
//! kernel under a [`Vmm`] and returns how the command ended. The same executable is the first process inside the
//! guest: see [`agent`].
//!
//! Temporary files are in one private directory, and every process that is started dies with this one.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod agent;
pub mod archive;
pub mod build;
mod daemon;
mod environment;
mod error;
mod event;
mod initramfs;
pub mod keep;
mod kernel;
mod kvm;
mod layers;
mod machine;
pub mod metrics;
pub mod mount_points;
pub mod network;
pub mod packages;
pub mod peer;
mod process;
mod protocol;
mod qemu;
mod qmp;
mod run;
mod run_dir;
mod scratch;
mod session;
mod share;
mod snapshot;
mod spec;
mod streams;
mod terminal;
pub mod tools;
mod tsc;
pub mod uml;
mod vmm;

pub use daemon::overlay_obstacle;
pub use error::{Error, Result};
pub use process::Supervised;
pub use qemu::{Accelerator, AtReset, Qemu};
pub use run::{DaxUsage, RunOutcome, Timings, run};
pub use share::{OverlayArg, ShareArg};
pub use spec::{
    CacheMode, Dax, DaxMode, Directory, Events, GuestSpec, Input, Kernel, Layer, MountedBy, Output, Root, Share, Stdio,
    User,
};
pub use vmm::{Boot, Channels, GuestChannels, SharePoint, Started, Vmm};
