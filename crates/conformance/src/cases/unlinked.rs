//! Open files that have no name any more.

use super::prelude::*;
use crate::client::MapMode;

pub(super) const CASES: &[Definition] = &[
    case("unlinked/open-file-is-read-written-and-truncated", data),
    case("unlinked/open-file-tells-no-links-and-changes-its-attributes", attributes),
    case("unlinked/a-new-file-of-the-same-name-is-another", new_name),
    case("unlinked/after-being-replaced-by-rename-the-handle-stays", replaced),
    case("unlinked/two-handles-share-the-nameless-file", two_handles),
    case("unlinked/mapping-stays-after-unlink-and-close", mapping),
    case("unlinked/locks-and-attributes-work-without-a-name", locks),
    case("unlinked/a-thousand-nameless-files-at-once", many),
    case("unlinked/blocks-come-back-after-the-last-close", space),
];

fn data(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    file.write_at("before", 0)?;
    t.unlink("f")?;
    t.step("read, write, grow, cut");
    same_data("data", &file.read_all()?, b"before")?;
    file.write_at(" after", 6)?;
    same_data("data", &file.read_all()?, b"before after")?;
    file.truncate(3)?;
    same_data("data", &file.read_all()?, b"bef")?;
    file.truncate(100_000)?;
    equal("size", file.stat()?.size, 100_000)?;
    file.sync()?;
    same_data("data", &file.read_at(4, 0)?, b"bef\0")
}

fn attributes(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    let ino = file.stat()?.ino;
    t.unlink("f")?;
    t.step("fstat, fchmod, futimens");
    equal("links", file.stat()?.nlink, 0)?;
    equal("inode", file.stat()?.ino, ino)?;
    file.chmod(0o640)?;
    let time = Time { sec: 1_000_000_000, nsec: 1 };
    file.utimens(SetTime::At(time), SetTime::At(time))?;
    let attr = file.stat()?;
    equal("permissions", attr.permissions(), 0o640)?;
    equal("mtime", attr.mtime, time)
}

fn new_name(t: &Case<'_>) -> Outcome {
    let old = t.create("f")?;
    old.write_at("old", 0)?;
    t.unlink("f")?;
    t.step("a file of the same name");
    let new = t.create("f")?;
    new.write_at("new!", 0)?;
    holds("another inode", old.stat()?.ino != new.stat()?.ino, old.stat()?.ino)?;
    same_data("the old", &old.read_all()?, b"old")?;
    same_data("the new", &t.get("f")?, b"new!")?;
    old.truncate(0)?;
    equal("size of the new", t.stat("f")?.size, 4)
}

fn replaced(t: &Case<'_>) -> Outcome {
    t.put("a", "a")?;
    let file = t.open("a", OFlags::RDWR)?;
    t.step("replaced twice");
    for text in ["b", "c"] {
        t.put("tmp", text)?;
        t.rename("tmp", "a")?;
        same_data("by name", &t.get("a")?, text.as_bytes())?;
    }
    file.write_at("A", 0)?;
    same_data("by handle", &file.read_all()?, b"A")?;
    same_data("by name", &t.get("a")?, b"c")
}

fn two_handles(t: &Case<'_>) -> Outcome {
    let one = t.create("f")?;
    let two = t.open("f", OFlags::RDONLY)?;
    t.unlink("f")?;
    t.step("write by one, read by the other, which outlives it");
    one.write_at("data", 0)?;
    one.close()?;
    same_data("data", &two.read_all()?, b"data")
}

fn mapping(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    file.write_all_at([b'x'; 8192], 0)?;
    let mapping = match file.map(0, 8192, MapMode { is_writable: true, is_shared: true }) {
        Err(Errno::NODEV) => return Err(Stop::skip("the file system has no shared mappings")),
        other => other?,
    };
    t.unlink("f")?;
    t.step("stores and loads without a name, then without a handle");
    mapping.store(5000, b"stored");
    same_data("through the handle", &file.read_at(6, 5000)?, b"stored")?;
    file.close()?;
    mapping.store(0, b"more");
    mapping.sync()?;
    let mut bytes = [0; 5];
    mapping.load(0, &mut bytes);
    same_data("through the mapping", &bytes, b"morex")
}

fn locks(t: &Case<'_>) -> Outcome {
    use crate::client::{LockKind, LockOwner};
    let file = t.create("f")?;
    t.unlink("f")?;
    t.step("a lock");
    file.lock(LockOwner::Process, LockKind::Write, 0, 0)?;
    file.lock(LockOwner::Process, LockKind::None, 0, 0)?;
    file.flock(LockKind::Write)?;
    file.flock(LockKind::None)?;
    t.step("an extended attribute");
    match file.xattr_set("user.key", "value") {
        Err(Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
        Ok(()) => same_data("value", &file.xattr_get("user.key")?, b"value"),
    }
}

fn many(t: &Case<'_>) -> Outcome {
    t.step("a thousand");
    let mut files = Vec::new();
    for index in 0..1000 {
        let name = format!("f{index}");
        let file = match t.create(&name) {
            Err(Errno::MFILE) => return Err(Stop::skip("fewer than 1000 descriptors are allowed")),
            other => other?,
        };
        file.write_at(&name, 0)?;
        t.unlink(&name)?;
        files.push(file);
    }
    equal("names", t.names(".")?.len(), 0)?;
    t.step("each still has its own data");
    for (index, file) in files.iter().enumerate() {
        same_data("data", &file.read_all()?, format!("f{index}").as_bytes())?;
    }
    Ok(())
}

fn space(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    file.write_all_at(vec![1; 1 << 20], 0)?;
    file.sync()?;
    t.unlink("f")?;
    t.step("the nameless file keeps its blocks");
    holds("blocks", file.stat()?.blocks >= 2048, file.stat()?.blocks)?;
    file.close()?;
    t.step("a directory that was all its is removed");
    equal("names", t.names(".")?.len(), 0)
}
