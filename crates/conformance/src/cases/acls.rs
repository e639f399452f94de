//! POSIX access control lists, as the bytes that `setfacl` writes.

use super::prelude::*;
use crate::fs::{Fs, ORDINARY};

pub(super) const CASES: &[Definition] = &[
    case("acls/an-entry-of-a-user-opens-the-file-to-it", user_entry),
    case("acls/an-entry-of-a-group-counts-for-its-members", group_entry),
    case("acls/the-mask-limits-entries-and-is-shown-as-the-group's-bits", mask),
    case("acls/chmod-changes-the-mask", chmod),
    case("acls/a-minimal-list-becomes-the-mode", minimal),
    case("acls/the-default-list-is-inherited-and-replaces-the-umask", inherited),
    case("acls/the-default-list-is-handed-down-to-directories", handed_down),
    case("acls/a-default-list-on-a-file-is-refused", default_on_file),
    case("acls/bytes-that-are-no-list-are-einval", malformed),
    case("acls/only-the-owner-sets-them", owner_only),
    case("acls/removing-the-list-leaves-the-mode", removed),
];

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// An entry: whom it is for, and what he may.
#[derive(Clone, Copy)]
enum Entry {
    Owner(u16),
    User(u32, u16),
    Group(u16),
    NamedGroup(u32, u16),
    Mask(u16),
    Other(u16),
}

/// The bytes of the attribute: version 2, then tag, rights and id of each entry.
fn list(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for entry in entries {
        let (tag, rights, id) = match *entry {
            Entry::Owner(rights) => (1u16, rights, u32::MAX),
            Entry::User(id, rights) => (2, rights, id),
            Entry::Group(rights) => (4, rights, u32::MAX),
            Entry::NamedGroup(id, rights) => (8, rights, id),
            Entry::Mask(rights) => (16, rights, u32::MAX),
            Entry::Other(rights) => (32, rights, u32::MAX),
        };
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(t: &Fs<'_>, path: &str, name: &str, entries: &[Entry]) -> Outcome {
    match t.xattr_set(path, name, list(entries)) {
        Err(Errno::OPNOTSUPP) => Err(Stop::skip("the file system has no ACLs")),
        other => Ok(other?),
    }
}

fn user_entry(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "secret")?;
    t.chmod("f", 0o600)?;
    t.ordinary(|t| refused(t.get("f"), Errno::ACCESS))?;
    t.step("reading for user 1000");
    let entries = [Entry::Owner(6), Entry::User(ORDINARY, 4), Entry::Group(0), Entry::Mask(4), Entry::Other(0)];
    set(t, "f", ACCESS, &entries)?;
    same_data("the list", &t.xattr_get("f", ACCESS)?, &list(&entries))?;
    t.ordinary(|t| {
        same_data("data", &t.get("f")?, b"secret")?;
        refused(t.open("f", OFlags::WRONLY), Errno::ACCESS)
    })?;
    t.step("and for no other");
    t.user(1001, 1001, &[], |t| refused(t.get("f"), Errno::ACCESS))
}

fn group_entry(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "secret")?;
    t.step("reading for group 2000");
    let entries = [Entry::Owner(6), Entry::Group(0), Entry::NamedGroup(2000, 4), Entry::Mask(4), Entry::Other(0)];
    set(t, "f", ACCESS, &entries)?;
    t.user(ORDINARY, ORDINARY, &[], |t| refused(t.get("f"), Errno::ACCESS))?;
    t.user(ORDINARY, ORDINARY, &[2000], |t| same_data("data", &t.get("f")?, b"secret"))?;
    t.user(ORDINARY, 2000, &[], |t| same_data("data", &t.get("f")?, b"secret"))
}

fn mask(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "secret")?;
    t.step("an entry that may all, a mask that lets reading through");
    let entries = [Entry::Owner(6), Entry::User(ORDINARY, 7), Entry::Group(0), Entry::Mask(4), Entry::Other(0)];
    set(t, "f", ACCESS, &entries)?;
    equal("permissions", t.stat("f")?.permissions(), 0o640)?;
    t.ordinary(|t| {
        t.get("f")?;
        refused(t.open("f", OFlags::WRONLY), Errno::ACCESS)
    })
}

fn chmod(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "secret")?;
    let entries = |mask, other| {
        [Entry::Owner(6), Entry::User(ORDINARY, 6), Entry::Group(0), Entry::Mask(mask), Entry::Other(other)]
    };
    set(t, "f", ACCESS, &entries(6, 0))?;
    t.step("chmod 624");
    t.chmod("f", 0o624)?;
    same_data("the list", &t.xattr_get("f", ACCESS)?, &list(&entries(2, 4)))?;
    t.ordinary(|t| refused(t.get("f"), Errno::ACCESS))
}

fn minimal(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.step("three entries");
    set(t, "f", ACCESS, &[Entry::Owner(7), Entry::Group(5), Entry::Other(1)])?;
    equal("permissions", t.stat("f")?.permissions(), 0o751)?;
    t.observe_result("list-of-its-own", &t.xattr_get("f", ACCESS));
    Ok(())
}

fn inherited(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    let default = [Entry::Owner(7), Entry::User(1234, 7), Entry::Group(5), Entry::Mask(7), Entry::Other(4)];
    set(t, "d", DEFAULT, &default)?;
    equal("permissions of the directory", t.stat("d")?.permissions(), 0o755)?;
    t.step("a file made with 666 under a mask of 077");
    t.umask(0o077);
    t.open_mode("d/f", OFlags::WRONLY | OFlags::CREATE, 0o666)?;
    t.umask(0o022);
    equal("permissions", t.stat("d/f")?.permissions(), 0o664)?;
    let expected = [Entry::Owner(6), Entry::User(1234, 7), Entry::Group(5), Entry::Mask(6), Entry::Other(4)];
    same_data("its list", &t.xattr_get("d/f", ACCESS)?, &list(&expected))?;
    t.step("with 600: the mode given is a bound");
    t.open_mode("d/g", OFlags::WRONLY | OFlags::CREATE, 0o600)?;
    equal("permissions", t.stat("d/g")?.permissions(), 0o600)
}

fn handed_down(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    let default = [Entry::Owner(7), Entry::User(1234, 5), Entry::Group(5), Entry::Mask(5), Entry::Other(0)];
    set(t, "d", DEFAULT, &default)?;
    t.step("a directory in it");
    t.umask(0o077);
    t.mkdir_mode("d/sub", 0o777)?;
    t.umask(0o022);
    equal("permissions", t.stat("d/sub")?.permissions(), 0o750)?;
    same_data("default list", &t.xattr_get("d/sub", DEFAULT)?, &list(&default))?;
    same_data("access list", &t.xattr_get("d/sub", ACCESS)?, &list(&default))?;
    t.step("other kinds");
    t.mknod("d/p", FileType::Fifo, 0o666, (0, 0))?;
    equal("fifo", t.stat("d/p")?.permissions(), 0o640)?;
    t.symlink("x", "d/l")?;
    equal("symlink", t.lstat("d/l")?.permissions(), 0o777)
}

fn default_on_file(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.mkdir("d")?;
    let entries = [Entry::Owner(7), Entry::Group(5), Entry::Other(1)];
    set(t, "d", DEFAULT, &entries)?;
    t.step("on a file");
    refused(t.xattr_set("f", DEFAULT, list(&entries)), Errno::ACCESS)?;
    t.step("no list at all");
    refused(t.xattr_get("f", ACCESS), Errno::NODATA)
}

fn malformed(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let good = list(&[Entry::Owner(7), Entry::Group(5), Entry::Other(1)]);
    set(t, "f", ACCESS, &[Entry::Owner(6), Entry::Group(4), Entry::Other(4)])?;
    t.step("cut short, without a mask, without an owner, twice the same");
    refused(t.xattr_set("f", ACCESS, &good[..good.len() - 1]), Errno::INVAL)?;
    let no_mask = [Entry::Owner(7), Entry::User(5, 5), Entry::Group(5), Entry::Other(1)];
    refused(t.xattr_set("f", ACCESS, list(&no_mask)), Errno::INVAL)?;
    refused(t.xattr_set("f", ACCESS, list(&[Entry::Group(5), Entry::Other(1)])), Errno::INVAL)?;
    let twice = [Entry::Owner(7), Entry::Owner(7), Entry::Group(5), Entry::Other(1)];
    refused(t.xattr_set("f", ACCESS, list(&twice)), Errno::INVAL)?;
    t.step("another version");
    let mut version = good;
    version[0] = 3;
    refused(t.xattr_set("f", ACCESS, version), Errno::OPNOTSUPP)?;
    equal("permissions", t.stat("f")?.permissions(), 0o644)
}

fn owner_only(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "x")?;
    t.chmod("f", 0o666)?;
    let entries = [Entry::Owner(6), Entry::Group(6), Entry::Other(6)];
    set(t, "f", ACCESS, &entries)?;
    t.step("a stranger");
    t.ordinary(|t| refused(t.xattr_set("f", ACCESS, list(&entries)), Errno::PERM))
}

fn removed(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let entries = [Entry::Owner(6), Entry::User(1234, 6), Entry::Group(0), Entry::Mask(6), Entry::Other(0)];
    set(t, "f", ACCESS, &entries)?;
    t.step("removed");
    t.xattr_remove("f", ACCESS)?;
    refused(t.xattr_get("f", ACCESS), Errno::NODATA)?;
    t.observe("permissions", format!("{:o}", t.stat("f")?.permissions()));
    Ok(())
}
