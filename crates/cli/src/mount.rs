//! `transom mount`: mounts the share of any virtio-fs daemon on this machine, without a virtual machine.
//!
//! [`command_line`] is what people write, also as `mount.transom`; [`serve`] is the process that serves the mount, and
//! [`background`] how it leaves its terminal; [`locks`] warns of locks. The mount itself is `transom_mount`.

mod background;
mod command_line;
mod locks;
mod serve;

pub(crate) use command_line::{MountArgs, run_if_mount_helper};
