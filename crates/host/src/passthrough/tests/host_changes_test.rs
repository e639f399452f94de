//! Changes of the host while this process cannot look at what has changed: nothing that matters is left out.

use std::{fs, sync::Arc};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::{Config, guest::Guest, is_root};
use crate::{
    notifications::Notifications,
    passthrough::HostChange,
    replay::Kind,
    sysfd::{FileHandle, MountId, RawFileHandle},
};

#[test]
fn a_change_of_a_file_that_cannot_be_looked_at_is_told() {
    if !is_root() {
        return println!("SKIPPED: an ordinary user opens no handles anyway");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let notifications = Arc::new(Notifications::new().unwrap());
    notifications.want(true);
    let config = Config { notifications: Some(notifications.clone()), ..Config::default() };
    let guest = Guest::new(dir.path(), config);
    if !guest.fs().inodes.holds_handles() {
        return println!("SKIPPED: handles cannot be opened here");
    }
    guest.walk("file").unwrap();
    guest.fs().inodes.close_all();
    let handle = RawFileHandle::from(&FileHandle::of(fs::File::open(&path).unwrap(), MountId(0)).unwrap());
    let links_have_changed =
        HostChange { kind: Kind::Attributes, is_directory: false, name: None, new_name: None, object: Some(&handle) };
    let tell = || {
        guest.fs().host_changed(&links_have_changed);
        std::iter::from_fn(|| notifications.take()).count()
    };
    assert_eq!(tell(), 1);
    guest.fs().inodes.close_all();
    // Stands for a process that is out of descriptors. Capabilities belong to a thread.
    let told = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let own = capabilities(None).unwrap();
            let effective = own.effective - CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, CapabilitySets { effective, ..own }).unwrap();
            tell()
        });
        thread.join().unwrap()
    });
    assert_eq!(told, 1);
    // The counterpart: nobody has cached anything of a file that is gone.
    fs::remove_file(&path).unwrap();
    assert_eq!(tell(), 0);
}
