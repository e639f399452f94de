//! Owners and rights: chown, groups, access checks.

use super::prelude::*;
use crate::client::Access;
use crate::fs::ORDINARY;

pub(super) const CASES: &[Definition] = &[
    case("owners/root-gives-files-away-and-minus-one-keeps", chown_root),
    case("owners/ordinary-user-gives-to-own-groups-only", chown_ordinary),
    case("owners/chown-of-a-symlink-leaves-its-target", chown_symlink),
    case("owners/supplementary-groups-count-for-access", groups_count),
    case("owners/the-owner's-bits-win-over-the-group's", owner_first),
    case("owners/files-of-each-creator-belong-to-it", creators),
    case("access/each-right-is-judged-by-the-mode", access_modes),
    case("access/root-may-read-and-write-all-and-execute-what-someone-may", access_root),
    case("access/open-of-a-file-without-rights-is-eacces", open_rights),
    case("access/opening-with-truncate-needs-write", truncate_needs_write),
];

fn chown_root(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    let file = t.create("f")?;
    let owner = || t.stat("f").map(|attr| (attr.uid, attr.gid));
    t.step("both, one, the other, none");
    t.chown("f", 1234, 5678)?;
    equal("owner", owner()?, (1234, 5678))?;
    t.chown("f", 42, None)?;
    equal("owner", owner()?, (42, 5678))?;
    file.chown(None, 43)?;
    equal("owner", owner()?, (42, 43))?;
    t.chown("f", None, None)?;
    equal("owner", owner()?, (42, 43))?;
    t.step("the largest numbers");
    t.chown("f", u32::MAX - 1, u32::MAX - 1)?;
    equal("owner", owner()?, (u32::MAX - 1, u32::MAX - 1))
}

fn chown_ordinary(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.chmod(".", 0o777)?;
    t.create("root")?;
    t.step("an ordinary user in group 2000");
    t.user(ORDINARY, ORDINARY, &[2000], |t| {
        t.create("f")?;
        t.chown("f", None, 2000)?;
        equal("group", t.stat("f")?.gid, 2000)?;
        t.chown("f", ORDINARY, ORDINARY)?;
        refused(t.chown("f", None, 3000), Errno::PERM)?;
        refused(t.chown("f", 1001, None), Errno::PERM)?;
        refused(t.chown("root", ORDINARY, None), Errno::PERM)?;
        refused(t.chown("root", None, 2000), Errno::PERM)
    })
}

fn chown_symlink(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "x")?;
    t.symlink("f", "l")?;
    t.step("the link, then its target");
    t.lchown("l", 77, 78)?;
    equal("link", (t.lstat("l")?.uid, t.lstat("l")?.gid), (77, 78))?;
    equal("target", (t.stat("f")?.uid, t.stat("f")?.gid), (0, 0))?;
    t.chown("l", 79, 80)?;
    equal("target", (t.stat("f")?.uid, t.stat("f")?.gid), (79, 80))?;
    equal("link", (t.lstat("l")?.uid, t.lstat("l")?.gid), (77, 78))
}

fn groups_count(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "secret")?;
    t.chmod("f", 0o640)?;
    t.chown("f", None, 2000)?;
    t.mkdir("d")?;
    t.chmod("d", 0o770)?;
    t.chown("d", None, 2000)?;
    t.step("without the group");
    t.user(ORDINARY, ORDINARY, &[], |t| {
        refused(t.get("f"), Errno::ACCESS)?;
        refused(t.create("d/g"), Errno::ACCESS)
    })?;
    t.step("with it, among others");
    t.user(ORDINARY, ORDINARY, &[1500, 2000, 2500], |t| {
        same_data("data", &t.get("f")?, b"secret")?;
        refused(t.open("f", OFlags::WRONLY), Errno::ACCESS)?;
        t.create("d/g")?;
        equal("group of the new file", t.stat("d/g")?.gid, ORDINARY)
    })
}

fn owner_first(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.make("f", 0o077)?;
    t.chown("f", ORDINARY, ORDINARY)?;
    t.make("g", 0o707)?;
    t.chown("g", 0, ORDINARY)?;
    t.step("owner without bits, group without bits");
    t.ordinary(|t| {
        refused(t.open("f", OFlags::RDONLY), Errno::ACCESS)?;
        refused(t.open("g", OFlags::RDONLY), Errno::ACCESS)
    })
}

fn creators(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.chmod(".", 0o777)?;
    t.step("three users");
    for (uid, gid) in [(1000, 1000), (1001, 2001), (65534, 65533)] {
        t.user(uid, gid, &[], |t| {
            t.create(format!("f{uid}"))?;
            t.mkdir(format!("d{uid}"))?;
            Ok(t.symlink("x", format!("l{uid}"))?)
        })?;
        for kind in ["f", "d", "l"] {
            let attr = t.lstat(format!("{kind}{uid}"))?;
            equal("owner and group", (attr.uid, attr.gid), (uid, gid))?;
        }
    }
    Ok(())
}

fn access_modes(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("each mode of the owner's bits");
    t.ordinary(|t| {
        t.create("f")?;
        let rights = [(4, Access::READ_OK), (2, Access::WRITE_OK), (1, Access::EXEC_OK)];
        for mode in 0..8 {
            t.chmod("f", mode << 6)?;
            for (bit, right) in rights {
                let expected = if mode & bit != 0 { Ok(()) } else { Err(Errno::ACCESS) };
                equal("real", t.access("f", right), expected)?;
                equal("effective", t.access_effective("f", right), expected)?;
            }
        }
        equal("existence", t.access("f", Access::EXISTS), Ok(()))?;
        refused(t.access("missing", Access::EXISTS), Errno::NOENT)
    })
}

fn access_root(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.make("f", 0)?;
    t.chown("f", ORDINARY, ORDINARY)?;
    t.step("a file of nobody's rights");
    t.access("f", Access::READ_OK | Access::WRITE_OK)?;
    refused(t.access("f", Access::EXEC_OK), Errno::ACCESS)?;
    t.chmod("f", 0o001)?;
    Ok(t.access("f", Access::EXEC_OK)?)
}

fn open_rights(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("the owner's bits");
    t.ordinary(|t| {
        t.put("f", "x")?;
        t.chmod("f", 0o400)?;
        t.open("f", OFlags::RDONLY)?;
        refused(t.open("f", OFlags::WRONLY), Errno::ACCESS)?;
        refused(t.open("f", OFlags::RDWR), Errno::ACCESS)?;
        t.chmod("f", 0o200)?;
        t.open("f", OFlags::WRONLY)?;
        refused(t.open("f", OFlags::RDONLY), Errno::ACCESS)?;
        refused(t.open("f", OFlags::RDWR), Errno::ACCESS)
    })
}

fn truncate_needs_write(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("a file that its owner may only read");
    t.ordinary(|t| {
        t.put("f", "data")?;
        t.chmod("f", 0o400)?;
        refused(t.open("f", OFlags::RDONLY | OFlags::TRUNC), Errno::ACCESS)?;
        refused(t.truncate("f", 0), Errno::ACCESS)?;
        same_data("data", &t.get("f")?, b"data")
    })
}
