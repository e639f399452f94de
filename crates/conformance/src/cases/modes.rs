//! Modes: masks, chmod, the set-id bits and what clears them.

use super::prelude::*;
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
    case("modes/truncate-by-the-owner-keeps-setgid-without-group-execute", truncate_keeps),
    case("modes/fallocate-and-copy-by-an-ordinary-user-clear-set-id-bits", other_writes_clear),
    case("modes/setgid-without-group-execute-survives-a-write", mandatory_lock_bit),
    case("modes/chown-clears-set-id-bits-of-files-and-not-of-directories", chown_clears),
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

fn truncate_keeps(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("by opening, by name, by handle; with and without execute for owner and group");
    t.ordinary(|t| {
        t.put("f", "data")?;
        let file = t.open("f", OFlags::RDWR)?;
        for (before, after) in [(0o6644, 0o2644), (0o6744, 0o2744), (0o6654, 0o654), (0o6754, 0o754)] {
            t.chmod("f", before)?;
            t.open("f", OFlags::WRONLY | OFlags::TRUNC)?;
            equal("by opening", perm(t, "f")?, after)?;
            t.chmod("f", before)?;
            t.truncate("f", 1)?;
            equal("by name", perm(t, "f")?, after)?;
            t.chmod("f", before)?;
            file.truncate(2)?;
            equal("by handle", perm(t, "f")?, after)?;
        }
        Ok(())
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
