//! Side-by-side measurements of virtio-fs daemons.
//!
//! [`workload`] is what is measured; it runs on any directory and prints JSON lines. The rest puts a daemon under that
//! directory, alternates between daemons, and says how they compare, or that they cannot be told apart.

pub mod workload;
