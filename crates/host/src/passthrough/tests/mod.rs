//! The file system as a guest sees it: requests in bytes through the server, with the host's own view as the oracle.
//!
//! [`guest`] is the driver's side; each other file has the cases of one subject.

mod attributes_test;
mod bounds_test;
mod create_test;
mod data_test;
mod direct_test;
mod directories_test;
mod guest;
mod hidden_test;
mod host_changes_test;
mod inodes_test;
mod known_test;
mod locks_test;
mod migration_test;
mod names_test;
mod needed_descriptors_test;
mod observed_test;
mod quota_model_test;
mod quota_test;
mod race_test;
mod reach_test;
mod replayed_test;
mod rights_test;
mod session_test;
mod stamps_test;
mod xattr_test;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::{Config, FileHandles};
use guest::Guest;

/// The ways to reference inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By handle, if the machine that runs the test allows it.
    Handles,
    /// By path, with a handle that identifies the inode but may not be opened.
    PathsWithHandles,
    /// Only by path.
    Paths,
}

/// Runs `case` for each way, in a directory of its own.
fn each_way(case: impl Fn(&Guest, &std::path::Path) + Sync) {
    each_way_with(Config::default(), case);
}

/// Like [`each_way`], with a configuration.
fn each_way_with(config: Config, case: impl Fn(&Guest, &std::path::Path) + Sync) {
    for way in [Way::Handles, Way::PathsWithHandles, Way::Paths] {
        println!("inodes are held by {way:?}");
        // Capabilities belong to a thread.
        let outcome = std::thread::scope(|scope| scope.spawn(|| one_way(way, &config, &case)).join());
        assert!(outcome.is_ok(), "failed with inodes held by {way:?}");
    }
}

fn one_way(way: Way, config: &Config, case: &impl Fn(&Guest, &std::path::Path)) {
    let dir = tempfile::tempdir().unwrap();
    let inode_file_handles = match way {
        Way::Handles | Way::PathsWithHandles => FileHandles::Prefer,
        Way::Paths => FileHandles::Never,
    };
    if way == Way::PathsWithHandles {
        let own = capabilities(None).unwrap();
        let effective = own.effective - CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, CapabilitySets { effective, ..own }).unwrap();
    }
    let guest = Guest::new(dir.path(), Config { inode_file_handles, ..config.clone() });
    let holds_handles = guest.fs().inodes.holds_handles();
    if way == Way::Handles && !holds_handles {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| println!("SKIPPED: inodes held by handles: these cannot be opened here"));
    }
    case(&guest, dir.path());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
