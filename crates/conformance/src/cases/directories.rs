//! Directories: making, removing, counting.

use super::prelude::*;

/// One of several changes that a case makes.
type Change<'c> = &'c dyn Fn() -> Result<(), Errno>;

pub(super) const CASES: &[Definition] = &[
    case("directories/new-one-is-empty-and-has-its-mode-and-owner", new_directory),
    case("directories/a-subdirectory-counts-as-a-link-where-the-file-system-counts", link_count),
    case("directories/mkdir-refuses-taken-names-and-missing-parents", mkdir_errors),
    case("directories/rmdir-refuses-full-ones-and-files", rmdir_errors),
    case("directories/rmdir-of-one-in-use-leaves-an-empty-shell", removed_in_use),
    case("directories/changes-inside-move-mtime-and-ctime", times),
    case("directories/a-name-that-stays-moves-nothing", times_still),
    case("directories/sync-of-a-directory-works", sync),
    case("directories/ordinary-user-needs-write-and-search", rights),
    case("directories/search-without-read-finds-known-names-only", search_only),
    case("directories/500-subdirectories-are-made-and-removed", many),
];

fn new_directory(t: &Case<'_>) -> Outcome {
    t.step("a directory");
    t.mkdir_mode("d", 0o751)?;
    let attr = t.stat("d")?;
    equal("type", attr.kind(), FileType::Directory)?;
    equal("permissions", attr.permissions(), 0o751)?;
    equal("owner", (attr.uid, attr.gid), (t.identity().uid, t.identity().gid))?;
    equal("names", t.names("d")?.len(), 0)?;
    t.step("without any rights");
    t.mkdir_mode("none", 0)?;
    equal("permissions", t.stat("none")?.permissions(), 0)?;
    Ok(t.rmdir("none")?)
}

fn link_count(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    let base = t.stat("d")?.nlink;
    t.observe("links-of-an-empty-one", base);
    t.step("three subdirectories, and a file that does not count");
    for name in ["d/a", "d/b", "d/c"] {
        t.mkdir(name)?;
    }
    t.put("d/f", "x")?;
    let full = t.stat("d")?.nlink;
    t.observe("links-with-three", full);
    t.step("gone again");
    for name in ["d/a", "d/b", "d/c"] {
        t.rmdir(name)?;
    }
    equal("links", t.stat("d")?.nlink, base)
}

fn mkdir_errors(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.symlink("nowhere", "l")?;
    t.mkdir("d")?;
    t.step("each with its error");
    for taken in ["f", "d", "l", "."] {
        refused(t.mkdir(taken), Errno::EXIST)?;
    }
    refused(t.mkdir("missing/d"), Errno::NOENT)?;
    refused(t.mkdir("f/d"), Errno::NOTDIR)?;
    refused(t.mkdir(""), Errno::NOENT)?;
    equal("the symlink's target", t.exists("nowhere")?, false)
}

fn rmdir_errors(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.mkdir("d")?;
    t.put("d/inner", "x")?;
    t.mkdir("e")?;
    t.symlink("e", "l")?;
    t.step("each with its error");
    refused_any(t.rmdir("d"), &[Errno::NOTEMPTY, Errno::EXIST])?;
    refused(t.rmdir("f"), Errno::NOTDIR)?;
    refused(t.rmdir("l"), Errno::NOTDIR)?;
    refused(t.rmdir("missing"), Errno::NOENT)?;
    t.step("emptied, it goes");
    t.unlink("d/inner")?;
    t.rmdir("d")?;
    refused(t.stat("d"), Errno::NOENT)
}

fn removed_in_use(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    let dir = t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    t.step("the directory is removed while open");
    t.rmdir("d")?;
    equal("links", dir.stat()?.nlink, 0)?;
    t.step("its stream is over");
    let entries = dir.entries();
    t.observe("entries", entries.as_ref().map_or_else(|errno| format!("{errno:?}"), |list| list.len().to_string()));
    t.step("the name is free");
    t.mkdir("d")?;
    holds("a new inode", t.stat("d")?.nlink > 0, t.stat("d")?)
}

fn times(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("elsewhere", "x")?;
    let changes: [(&str, Change<'_>); 8] = [
        ("create", &|| t.put("d/f", "x")),
        ("mkdir", &|| t.mkdir("d/sub")),
        ("symlink", &|| t.symlink("x", "d/l")),
        ("mknod", &|| t.mknod("d/p", FileType::Fifo, 0o600, (0, 0))),
        ("link", &|| t.link("elsewhere", "d/hard")),
        ("rename within", &|| t.rename("d/f", "d/g")),
        ("unlink", &|| t.unlink("d/g")),
        ("rmdir", &|| t.rmdir("d/sub")),
    ];
    for (what, change) in changes {
        t.step(what);
        let before = t.stat("d")?;
        t.wait_past(before.ctime)?;
        change()?;
        let after = t.stat("d")?;
        holds("mtime and ctime move", after.mtime > before.mtime && after.ctime > before.ctime, (before, after))?;
    }
    Ok(())
}

fn times_still(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("d/f", "x")?;
    let before = t.stat("d")?;
    t.wait_past(before.ctime)?;
    t.step("changes of a file in it, and refused ones");
    t.open("d/f", OFlags::WRONLY)?.write_at("data", 0)?;
    t.chmod("d/f", 0o600)?;
    refused(t.mkdir("d/f"), Errno::EXIST)?;
    refused(t.unlink("d/missing"), Errno::NOENT)?;
    t.open("d/f", OFlags::WRONLY | OFlags::CREATE)?;
    let after = t.stat("d")?;
    equal("mtime", after.mtime, before.mtime)?;
    equal("ctime", after.ctime, before.ctime)
}

fn sync(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("d/f", "x")?;
    t.step("fsync, fdatasync and syncfs of a directory");
    let dir = t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    dir.sync()?;
    dir.sync_data()?;
    Ok(dir.sync_fs()?)
}

fn rights(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.ordinary(|t| {
        t.mkdir("d")?;
        t.put("d/f", "x")?;
        t.chmod("d", 0o600)?;
        refused(t.stat("d/f"), Errno::ACCESS)?;
        equal("names can still be read", t.names("d")?, vec!["f".to_owned()])?;
        t.chmod("d", 0o500)?;
        refused(t.mkdir("d/sub"), Errno::ACCESS)?;
        refused(t.symlink("x", "d/l"), Errno::ACCESS)?;
        refused(t.mknod("d/p", FileType::Fifo, 0o600, (0, 0)), Errno::ACCESS)?;
        refused(t.link("d/f", "d/g"), Errno::ACCESS)?;
        Ok(t.chmod("d", 0o700)?)
    })
}

fn search_only(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.ordinary(|t| {
        t.mkdir("d")?;
        t.put("d/f", "x")?;
        t.chmod("d", 0o100)?;
        same_data("a name that is known", &t.get("d/f")?, b"x")?;
        refused(t.open("d", OFlags::RDONLY), Errno::ACCESS)?;
        refused(t.stat("d/missing"), Errno::NOENT)?;
        Ok(t.chmod("d", 0o700)?)
    })
}

fn many(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.step("500 made");
    for index in 0..500 {
        t.mkdir(format!("d/{index}"))?;
    }
    equal("names", t.names("d")?.len(), 500)?;
    t.observe("links", t.stat("d")?.nlink);
    t.step("500 removed");
    for index in 0..500 {
        t.rmdir(format!("d/{index}"))?;
    }
    equal("names", t.names("d")?.len(), 0)?;
    Ok(t.rmdir("d")?)
}
