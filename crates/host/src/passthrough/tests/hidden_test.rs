//! Names that are hidden from the guest, and what a hostile guest may try to reach them.

use std::{fs, os::unix::fs::symlink, path::Path};

use rustix::fs::OFlags;
use transom_wire::{Handle, NodeId, Opcode, attr::EntryOut, ops::link::LinkIn};
use zerocopy::IntoBytes;

use super::{each_way, each_way_with, guest::Guest};
use crate::{
    Errno,
    passthrough::{Config, HiddenPaths},
};

const ROOT: NodeId = NodeId::ROOT;
const EXCHANGE: u32 = 2;

/// Hides `home` but for `home/tools`, `keys`, what is named `.token`, and `later/secret`, which need not exist.
fn config() -> Config {
    let mut hidden = HiddenPaths::default();
    hidden.hide_contents(Path::new("home"));
    hidden.show(Path::new("home/tools"));
    hidden.hide(Path::new("keys"));
    hidden.hide(Path::new("later/secret"));
    hidden.hide_name(b".token");
    Config { hidden, ..Config::default() }
}

/// Fills a share before the daemon starts.
fn fill(dir: &Path) {
    for folder in ["home/.ssh", "home/tools", "keys", "open"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    for file in ["home/.ssh/id", "home/tools/cc", "home/tools/.token", "keys/a", "open/.token", "open/b"] {
        fs::write(dir.join(file), "content").unwrap();
    }
    symlink("keys", dir.join("link")).unwrap();
}

/// Runs `case` in a share that was filled before the file system was opened.
fn each_filled(case: impl Fn(&Guest, &Path) + Sync) {
    each_way(|_, dir| {
        let share = dir.join("share");
        fs::create_dir(&share).unwrap();
        fill(&share);
        case(&Guest::new(&share, config()), &share);
    });
}

/// Returns the names that READDIR and READDIRPLUS list.
fn names(guest: &Guest, dir: NodeId) -> Vec<String> {
    let list = |names: Vec<Vec<u8>>| {
        let mut names: Vec<_> = names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
        names.sort();
        names.retain(|name| name != "." && name != "..");
        names
    };
    let fh = guest.opendir(dir).unwrap();
    let plain = list(guest.readdir(dir, fh, 0, 4096).unwrap().into_iter().map(|entry| entry.0).collect());
    let plus = list(guest.readdirplus(dir, fh, 0, 4096).unwrap().into_iter().map(|entry| entry.name).collect());
    assert_eq!(plain, plus);
    plain
}

#[test]
fn what_a_link_leads_to_is_hidden_as_a_rule_for_the_link_says() {
    each_way(|_, dir| {
        let share = dir.join("share");
        fs::create_dir_all(share.join("data/homes/me/tools")).unwrap();
        fs::create_dir_all(share.join("data/homes/other")).unwrap();
        fs::create_dir_all(share.join("data/keys")).unwrap();
        symlink("data/homes", share.join("home")).unwrap();
        symlink("/data/keys", share.join("keys")).unwrap();
        let mut hidden = HiddenPaths::default();
        hidden.hide_contents(Path::new("home"));
        hidden.show(Path::new("home/me/tools"));
        hidden.hide(Path::new("keys"));
        let guest = Guest::new(&share, Config { hidden, ..Config::default() });
        assert_eq!(names(&guest, guest.walk("data").unwrap()), ["homes"]);
        assert_eq!(names(&guest, guest.walk("data/homes").unwrap()), ["me"]);
        assert_eq!(names(&guest, guest.walk("data/homes/me").unwrap()), ["tools"]);
        assert_eq!(guest.walk("data/homes/other").err(), Some(Errno::NOENT));
    });
}

#[test]
fn hidden_names_are_absent_to_lookup_and_to_both_listings() {
    each_filled(|guest, _| {
        for path in ["keys", "keys/a", "home/.ssh", "home/.ssh/id", "open/.token", "home/tools/.token"] {
            assert_eq!(guest.walk(path).err(), Some(Errno::NOENT), "{path}");
        }
        assert_eq!(names(guest, ROOT), ["home", "link", "open"]);
        assert_eq!(names(guest, guest.walk("home").unwrap()), ["tools"]);
        assert_eq!(names(guest, guest.walk("home/tools").unwrap()), ["cc"]);
        assert_eq!(names(guest, guest.walk("open").unwrap()), ["b"]);
    });
}

#[test]
fn the_nodeid_of_another_directory_opens_no_listing() {
    each_filled(|guest, _| {
        let (home, open) = (guest.walk("home").unwrap(), guest.walk("open").unwrap());
        let fh: Handle = guest.opendir(home).unwrap();
        let listed = guest.readdir(open, fh, 0, 4096).unwrap();
        assert!(listed.iter().all(|(name, _)| name != b".ssh"), "{listed:?}");
        let listed = guest.readdirplus(open, fh, 0, 4096).unwrap();
        assert!(listed.iter().all(|entry| entry.name != b".ssh"));
    });
}

#[test]
fn a_hidden_name_can_be_neither_created_nor_replaced_nor_removed() {
    each_filled(|guest, dir| {
        let (home, open) = (guest.walk("home").unwrap(), guest.walk("open").unwrap());
        let b = guest.walk("open/b").unwrap();
        for (parent, name) in [(ROOT, "keys"), (home, ".ssh"), (home, "new"), (open, ".token")] {
            assert_eq!(guest.create(parent, name, OFlags::RDWR).err(), Some(Errno::ACCESS), "{name}");
            assert_eq!(guest.mkdir(parent, name).err(), Some(Errno::ACCESS), "{name}");
            let arg = LinkIn { oldnodeid: b.into() };
            let linked = guest.ask::<EntryOut>(Opcode::Link, parent, &[arg.as_bytes(), name.as_bytes(), b"\0"]);
            assert_eq!(linked.err(), Some(Errno::ACCESS), "{name}");
            let linked = guest.ask::<EntryOut>(Opcode::Symlink, parent, &[name.as_bytes(), b"\0x\0"]);
            assert_eq!(linked.err(), Some(Errno::ACCESS), "{name}");
            assert_eq!(guest.rename((open, "b"), (parent, name), 0).err(), Some(Errno::ACCESS), "{name}");
            assert_eq!(guest.rename((open, "b"), (parent, name), EXCHANGE).err(), Some(Errno::ACCESS), "{name}");
            assert_eq!(guest.rename((parent, name), (open, "c"), 0).err(), Some(Errno::NOENT), "{name}");
            assert_eq!(guest.unlink(parent, name).err(), Some(Errno::NOENT), "{name}");
            assert_eq!(guest.rmdir(parent, name).err(), Some(Errno::NOENT), "{name}");
        }
        assert_eq!(fs::read(dir.join("open/.token")).unwrap(), b"content");
        assert!(!dir.join("home/new").exists());
    });
}

#[test]
fn a_directory_on_the_way_to_a_rule_cannot_be_moved_out_of_its_reach() {
    each_filled(|guest, dir| {
        assert_eq!(guest.rename((ROOT, "home"), (ROOT, "away"), 0).err(), Some(Errno::BUSY));
        assert_eq!(guest.rename((ROOT, "home"), (ROOT, "open"), EXCHANGE).err(), Some(Errno::BUSY));
        assert_eq!(guest.rename((ROOT, "open"), (ROOT, "home"), EXCHANGE).err(), Some(Errno::BUSY));
        // 1. The directory need not have existed at the start.
        fs::create_dir_all(dir.join("later/secret")).unwrap();
        assert_eq!(guest.walk("later/secret").err(), Some(Errno::NOENT));
        assert_eq!(guest.rename((ROOT, "later"), (ROOT, "away"), 0).err(), Some(Errno::BUSY));
        // 2. The host may move it, and what was known at the start stays hidden.
        fs::rename(dir.join("home"), dir.join("moved")).unwrap();
        assert_eq!(guest.walk("moved/.ssh").err(), Some(Errno::NOENT));
    });
}

#[test]
fn another_name_of_what_was_hidden_at_the_start_is_no_way_to_it() {
    each_filled(|guest, dir| {
        fs::rename(dir.join("keys"), dir.join("open/renamed")).unwrap();
        assert_eq!(guest.walk("open/renamed").err(), Some(Errno::NOENT));
        assert_eq!(names(guest, guest.walk("open").unwrap()), ["b"]);
        // The name itself stays hidden, whatever is there.
        fs::create_dir(dir.join("keys")).unwrap();
        assert_eq!(guest.walk("keys").err(), Some(Errno::NOENT));
    });
}

#[test]
fn what_is_forgotten_and_looked_up_again_is_hidden_as_before() {
    each_filled(|guest, _| {
        for _ in 0..3 {
            let home = guest.walk("home").unwrap();
            assert_eq!(guest.lookup(home, ".ssh").err(), Some(Errno::NOENT));
            guest.forget(home, 1);
        }
    });
}

#[test]
fn nothing_is_hidden_without_a_rule() {
    each_way_with(Config::default(), |guest, dir| {
        fill(dir);
        assert!(guest.walk("home/.ssh/id").is_ok() && guest.walk("open/.token").is_ok());
        assert!(guest.rename((ROOT, "home"), (ROOT, "away"), 0).is_ok());
    });
}
