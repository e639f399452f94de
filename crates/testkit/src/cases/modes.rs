//! Permissions: modes and masks, the set-id bits and what clears them, access checks, ownership.

use super::prelude::*;
use crate::client::Access;
use crate::fs::{Fs, ORDINARY};

pub(super) const CASES: &[Definition] = &[
    case("modes/the-mask-clears-bits-of-every-new-object", umask),
    case("modes/create-and-mkdir-take-set-id-and-sticky-bits", special_bits_at_creation),
    case("modes/chmod-sets-all-twelve-bits-of-one's-own-file", chmod_bits),
    case("modes/chmod-by-a-stranger-is-eperm", chmod_stranger),
    case("modes/chmod-by-handle-works-on-an-unlinked-file", chmod_handle),
    case("modes/chmod-of-a-group-one-is-not-in-drops-setgid", chmod_foreign_group),
    case("modes/setgid-directory-hands-its-group-down", setgid_directory),
    case("modes/setgid-directory-drops-setgid-of-a-stranger's-new-file", setgid_directory_stranger),
    case("modes/a-write-by-an-ordinary-user-clears-set-id-bits", write_clears),
    case("modes/a-write-by-root-keeps-set-id-bits", write_by_root),
    case("modes/truncate-by-an-ordinary-user-clears-set-id-bits", truncate_clears),
    case("modes/fallocate-and-copy-by-an-ordinary-user-clear-set-id-bits", other_writes_clear),
    case("modes/setgid-without-group-execute-survives-a-write", mandatory_lock_bit),
    case("modes/chown-clears-set-id-bits-of-files-and-not-of-directories", chown_clears),
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

fn perm(t: &Fs<'_>, name: &str) -> Result<u32, Errno> {
    Ok(t.lstat(name)?.permissions())
}

fn umask(t: &Case<'_>) -> Outcome {
    for (mask, file, dir) in [(0o000, 0o666, 0o777), (0o027, 0o640, 0o750), (0o777, 0, 0)] {
        t.step(&format!("mask {mask:03o}"));
        t.umask(mask);
        t.open_mode(format!("f{mask}"), OFlags::WRONLY | OFlags::CREATE, 0o666)?;
        t.mkdir_mode(format!("d{mask}"), 0o777)?;
        t.mknod(format!("p{mask}"), FileType::Fifo, 0o666, (0, 0))?;
        t.symlink("x", format!("l{mask}"))?;
        t.umask(0o022);
        equal("file", perm(t, &format!("f{mask}"))?, file)?;
        equal("directory", perm(t, &format!("d{mask}"))?, dir)?;
        equal("fifo", perm(t, &format!("p{mask}"))?, file)?;
        equal("symlink", perm(t, &format!("l{mask}"))?, 0o777)?;
        t.rmdir(format!("d{mask}"))?;
    }
    Ok(())
}

fn special_bits_at_creation(t: &Case<'_>) -> Outcome {
    t.step("a file and a directory with bits beyond 777");
    t.umask(0);
    t.open_mode("f", OFlags::WRONLY | OFlags::CREATE, 0o6755)?;
    equal("file", perm(t, "f")?, 0o6755)?;
    t.mkdir_mode("d", 0o1777)?;
    equal("directory", perm(t, "d")?, 0o1777)
}

fn chmod_bits(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("file and directory, all bits, by name and by handle");
    t.ordinary(|t| {
        let file = t.create("f")?;
        t.mkdir("d")?;
        for mode in [0o7777, 0o4711, 0o2755, 0o1644, 0] {
            t.chmod("f", mode)?;
            equal("file", perm(t, "f")?, mode)?;
            t.chmod("d", mode)?;
            equal("directory", perm(t, "d")?, mode)?;
            file.chmod(mode ^ 0o111)?;
            equal("by handle", file.stat()?.permissions(), mode ^ 0o111)?;
        }
        Ok(t.chmod("d", 0o755)?)
    })
}

fn chmod_stranger(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.make("f", 0o666)?;
    t.step("not the owner");
    t.ordinary(|t| {
        refused(t.chmod("f", 0o777), Errno::PERM)?;
        refused(t.open("f", OFlags::RDWR)?.chmod(0o600), Errno::PERM)?;
        refused(t.chmod("missing", 0o600), Errno::NOENT)
    })?;
    equal("permissions", perm(t, "f")?, 0o666)
}

fn chmod_handle(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.unlink("f")?;
    t.step("a file without a name");
    file.chmod(0o604)?;
    equal("permissions", file.stat()?.permissions(), 0o604)
}

fn chmod_foreign_group(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.make("f", 0o755)?;
    t.chown("f", ORDINARY, 2000)?;
    t.step("the owner is not in the file's group");
    t.user(ORDINARY, ORDINARY, &[], |t| Ok(t.chmod("f", 0o2755)?))?;
    equal("permissions", perm(t, "f")?, 0o755)?;
    t.step("the owner is in it by a supplementary group");
    t.user(ORDINARY, ORDINARY, &[2000], |t| Ok(t.chmod("f", 0o2755)?))?;
    equal("permissions", perm(t, "f")?, 0o2755)
}

fn setgid_directory(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.mkdir("d")?;
    t.chown("d", None, 2000)?;
    t.chmod("d", 0o2777)?;
    t.step("what an ordinary user makes in it");
    t.ordinary(|t| {
        t.create("d/f")?;
        t.mkdir("d/sub")?;
        t.symlink("x", "d/l")?;
        t.mknod("d/p", FileType::Fifo, 0o644, (0, 0))?;
        Ok(())
    })?;
    for name in ["d/f", "d/sub", "d/l", "d/p"] {
        equal("owner and group", (t.lstat(name)?.uid, t.lstat(name)?.gid), (ORDINARY, 2000))?;
    }
    equal("a directory hands the bit on", perm(t, "d/sub")? & 0o2000, 0o2000)?;
    equal("a file does not", perm(t, "d/f")? & 0o2000, 0)
}

fn setgid_directory_stranger(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.mkdir("d")?;
    t.chown("d", None, 2000)?;
    t.chmod("d", 0o2777)?;
    t.step("a set-group-id file of a user who is not in the group");
    t.user(ORDINARY, ORDINARY, &[], |t| {
        t.umask(0);
        t.open_mode("d/f", OFlags::WRONLY | OFlags::CREATE, 0o2777)?;
        Ok(())
    })?;
    equal("permissions", perm(t, "d/f")?, 0o777)?;
    t.step("of one who is");
    t.user(ORDINARY, ORDINARY, &[2000], |t| {
        t.umask(0);
        t.open_mode("d/g", OFlags::WRONLY | OFlags::CREATE, 0o2777)?;
        Ok(())
    })?;
    equal("permissions", perm(t, "d/g")?, 0o2777)
}

fn write_clears(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("the owner, an ordinary user, writes");
    t.ordinary(|t| {
        t.make("f", 0o6777)?;
        let file = t.open("f", OFlags::RDWR)?;
        file.write_at("x", 0)?;
        equal("by name", perm(t, "f")?, 0o777)?;
        equal("by handle", file.stat()?.permissions(), 0o777)?;
        t.chmod("f", 0o6777)?;
        file.write_at("y", 0)?;
        equal("after a second round", perm(t, "f")?, 0o777)
    })
}

fn write_by_root(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.make("f", 0o6777)?;
    t.step("root writes");
    t.open("f", OFlags::RDWR)?.write_at("x", 0)?;
    equal("permissions", perm(t, "f")?, 0o6777)
}

fn truncate_clears(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("by handle, by name, by opening");
    t.ordinary(|t| {
        t.put("f", "data")?;
        t.chmod("f", 0o6777)?;
        t.open("f", OFlags::RDWR)?.truncate(2)?;
        equal("by handle", perm(t, "f")?, 0o777)?;
        t.chmod("f", 0o6777)?;
        t.truncate("f", 1)?;
        equal("by name", perm(t, "f")?, 0o777)?;
        t.chmod("f", 0o6777)?;
        t.open("f", OFlags::WRONLY | OFlags::TRUNC)?;
        equal("by opening", perm(t, "f")?, 0o777)
    })
}

fn other_writes_clear(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    let (allocated, copied) = t.ordinary(|t| {
        t.put("source", "some data")?;
        t.make("f", 0o6777)?;
        let file = t.open("f", OFlags::RDWR)?;
        let allocate = file.fallocate(crate::client::FallocateFlags::empty(), 0, 4096);
        let allocated = (allocate, perm(t, "f")?);
        t.chmod("f", 0o6777)?;
        let copy = t.open("source", OFlags::RDONLY)?.copy_range(0, &file, 0, 9);
        Ok((allocated, (copy, perm(t, "f")?)))
    })?;
    t.step("what is left of the bits");
    t.observe_result("fallocate", &allocated.0);
    t.observe("after-fallocate", format!("{:o}", allocated.1));
    t.observe_result("copy", &copied.0);
    t.observe("after-copy", format!("{:o}", copied.1));
    Ok(())
}

fn mandatory_lock_bit(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("set-group-id without execute for the group is no danger");
    t.ordinary(|t| {
        t.make("f", 0o2745)?;
        t.open("f", OFlags::RDWR)?.write_at("x", 0)?;
        equal("permissions", perm(t, "f")?, 0o2745)
    })
}

fn chown_clears(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    let gid = t.ordinary(|t| Ok(t.identity().gid))?;
    t.step("the owner gives the file to its own group");
    t.ordinary(|t| {
        t.make("f", 0o6777)?;
        t.chown("f", None, gid)?;
        equal("file", perm(t, "f")?, 0o777)?;
        t.mkdir("d")?;
        t.chmod("d", 0o6777)?;
        t.chown("d", None, gid)?;
        equal("directory", perm(t, "d")?, 0o6777)
    })?;
    t.step("root");
    if t.is_root() {
        t.make("root", 0o6777)?;
        t.chown("root", ORDINARY, None)?;
        equal("file", perm(t, "root")?, 0o777)?;
    }
    Ok(())
}

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
