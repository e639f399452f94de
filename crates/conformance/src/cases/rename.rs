//! Rename without flags.

use super::prelude::*;

pub(super) const CASES: &[Definition] = &[
    case("rename/file-keeps-inode-data-and-links", file_moves),
    case("rename/over-a-file-replaces-it-and-an-open-handle-keeps-the-old-one", over_file),
    case("rename/over-a-hard-linked-file-drops-one-link", over_linked_file),
    case("rename/directory-over-an-empty-one-replaces-it", over_empty_directory),
    case("rename/directory-over-a-full-one-is-enotempty", over_full_directory),
    case("rename/types-that-do-not-match-are-refused", type_mismatch),
    case("rename/two-names-of-one-inode-both-stay", same_inode),
    case("rename/onto-itself-changes-nothing", onto_itself),
    case("rename/directory-into-its-own-child-is-einval", into_own_child),
    case("rename/parent-over-child-and-child-over-parent-are-refused", over_ancestor),
    case("rename/across-directories-updates-dotdot-and-link-counts", across_directories),
    case("rename/symlink-moves-itself-and-not-its-target", symlink),
    case("rename/missing-source-target-parent-or-bad-names-are-refused", errors),
    case("rename/updates-times-of-both-directories-and-not-the-data's", times),
    case("rename/open-file-goes-on-under-its-new-name", open_file),
    case("rename/special-files-move-too", special_files),
    case("rename/sticky-directory-protects-the-names-of-others", sticky),
];

fn file_moves(t: &Case<'_>) -> Outcome {
    t.put("a", "data")?;
    let before = t.stat("a")?;
    t.step("within the directory");
    t.rename("a", "b")?;
    let after = t.stat("b")?;
    equal("inode", after.ino, before.ino)?;
    equal("links", after.nlink, 1)?;
    refused(t.stat("a"), Errno::NOENT)?;
    t.step("into another");
    t.mkdir("d")?;
    t.rename("b", "d/c")?;
    same_data("data", &t.get("d/c")?, b"data")?;
    equal("names", t.names(".")?, vec!["d".to_owned()])?;
    t.step("and back under the first name");
    t.rename("d/c", "a")?;
    equal("inode", t.stat("a")?.ino, before.ino)?;
    equal("names left", t.names("d")?, Vec::<String>::new())
}

fn over_file(t: &Case<'_>) -> Outcome {
    t.put("new", "new")?;
    t.put("old", "old")?;
    let old = t.open("old", OFlags::RDONLY)?;
    t.step("rename replaces the name");
    t.rename("new", "old")?;
    same_data("by name", &t.get("old")?, b"new")?;
    equal("names", t.names(".")?, vec!["old".to_owned()])?;
    t.step("the replaced file lives on in its handle");
    same_data("by handle", &old.read_all()?, b"old")?;
    equal("links by handle", old.stat()?.nlink, 0)
}

fn over_linked_file(t: &Case<'_>) -> Outcome {
    t.put("a", "a")?;
    t.put("b", "b")?;
    t.link("b", "b2")?;
    t.step("one of two names is replaced");
    t.rename("a", "b")?;
    equal("links of the other name", t.stat("b2")?.nlink, 1)?;
    same_data("data of the other name", &t.get("b2")?, b"b")
}

fn over_empty_directory(t: &Case<'_>) -> Outcome {
    t.mkdir("a")?;
    t.put("a/f", "x")?;
    t.mkdir("b")?;
    let old = t.open("b", OFlags::RDONLY | OFlags::DIRECTORY)?;
    t.step("a full directory replaces an empty one");
    t.rename("a", "b")?;
    equal("names in it", t.names("b")?, vec!["f".to_owned()])?;
    equal("links of the replaced one", old.stat()?.nlink, 0)?;
    equal("names", t.names(".")?, vec!["b".to_owned()])
}

fn over_full_directory(t: &Case<'_>) -> Outcome {
    t.mkdir("a")?;
    t.mkdir("b")?;
    t.put("b/f", "x")?;
    t.step("the target has an entry");
    refused_any(t.rename("a", "b"), &[Errno::NOTEMPTY, Errno::EXIST])?;
    t.step("both are as before");
    equal("names", t.names(".")?, vec!["a".to_owned(), "b".to_owned()])?;
    equal("names in the target", t.names("b")?, vec!["f".to_owned()])
}

fn type_mismatch(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("f", "x")?;
    t.symlink("d", "l")?;
    t.step("directory over file, file over directory");
    refused(t.rename("d", "f"), Errno::NOTDIR)?;
    refused(t.rename("f", "d"), Errno::ISDIR)?;
    t.step("symlinks count as files");
    refused(t.rename("d", "l"), Errno::NOTDIR)?;
    refused(t.rename("l", "d"), Errno::ISDIR)?;
    equal("names", t.names(".")?.len(), 3)
}

fn same_inode(t: &Case<'_>) -> Outcome {
    t.put("a", "x")?;
    t.link("a", "b")?;
    t.step("POSIX: nothing happens");
    t.rename("a", "b")?;
    equal("names", t.names(".")?, vec!["a".to_owned(), "b".to_owned()])?;
    equal("links", t.stat("a")?.nlink, 2)
}

fn onto_itself(t: &Case<'_>) -> Outcome {
    t.put("a", "x")?;
    t.mkdir("d")?;
    t.step("file and directory onto themselves");
    t.rename("a", "a")?;
    t.rename("d", "d")?;
    same_data("data", &t.get("a")?, b"x")?;
    equal("names", t.names(".")?.len(), 2)
}

fn into_own_child(t: &Case<'_>) -> Outcome {
    t.mkdir("a")?;
    t.mkdir("a/b")?;
    t.mkdir("a/b/c")?;
    t.step("below itself, at two depths");
    refused(t.rename("a", "a/x"), Errno::INVAL)?;
    refused(t.rename("a", "a/b/c/x"), Errno::INVAL)?;
    equal("names", t.names(".")?, vec!["a".to_owned()])
}

fn over_ancestor(t: &Case<'_>) -> Outcome {
    t.mkdir("a")?;
    t.mkdir("a/b")?;
    t.step("a child over its parent");
    refused_any(t.rename("a/b", "a"), &[Errno::NOTEMPTY, Errno::EXIST])?;
    t.step("a parent over its child");
    refused(t.rename("a", "a/b"), Errno::INVAL)?;
    t.step("names that are no names");
    refused_any(t.rename(".", "x"), &[Errno::BUSY, Errno::INVAL])?;
    refused_any(t.rename("a", "."), &[Errno::BUSY, Errno::INVAL, Errno::NOTEMPTY, Errno::EXIST])?;
    refused_any(t.rename("a/b", ".."), &[Errno::BUSY, Errno::INVAL, Errno::NOTEMPTY, Errno::EXIST])
}

fn across_directories(t: &Case<'_>) -> Outcome {
    t.mkdir("p")?;
    t.mkdir("q")?;
    t.mkdir("p/d")?;
    let (p, q) = (t.stat("p")?, t.stat("q")?);
    equal("'..' before", t.stat("p/d/..")?.ino, p.ino)?;
    t.step("the directory moves");
    t.rename("p/d", "q/d")?;
    equal("'..' after", t.stat("q/d/..")?.ino, q.ino)?;
    t.step("a subdirectory counts as a link of its parent, where the file system counts them");
    let lost = p.nlink - t.stat("p")?.nlink;
    let won = t.stat("q")?.nlink - q.nlink;
    equal("links lost and won", lost, won)?;
    t.observe("links", won);
    let entries = t.open("q/d", OFlags::RDONLY)?.entries()?;
    let dotdot = entries.iter().find(|entry| entry.name == b"..").map(|entry| entry.ino);
    t.step("the stream's '..' leads there too");
    equal("inode of the entry '..'", dotdot, Some(q.ino))
}

fn symlink(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.symlink("f", "l")?;
    t.step("the link is renamed, over nothing and over its target");
    t.rename("l", "m")?;
    equal("target", t.readlink("m")?, b"f".to_vec())?;
    t.rename("m", "f")?;
    equal("type", t.lstat("f")?.kind(), FileType::Symlink)?;
    refused(t.stat("f"), Errno::LOOP)
}

fn errors(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.mkdir("d")?;
    let long = "n".repeat(256);
    t.step("missing names");
    refused(t.rename("missing", "x"), Errno::NOENT)?;
    refused(t.rename("f", "missing/x"), Errno::NOENT)?;
    refused(t.rename("f", "f/x"), Errno::NOTDIR)?;
    refused(t.rename("f", ""), Errno::NOENT)?;
    t.step("a name that is too long");
    refused(t.rename("f", &long), Errno::NAMETOOLONG)?;
    refused(t.rename(&long, "f"), Errno::NAMETOOLONG)?;
    t.step("a slash at the end");
    refused(t.rename("f", "x/"), Errno::NOTDIR)?;
    refused(t.rename("f/", "x"), Errno::NOTDIR)?;
    t.rename("d/", "e/")?;
    equal("names", t.names(".")?, vec!["e".to_owned(), "f".to_owned()])
}

fn times(t: &Case<'_>) -> Outcome {
    t.mkdir("p")?;
    t.mkdir("q")?;
    t.put("p/f", "x")?;
    let (p, q, f) = (t.stat("p")?, t.stat("q")?, t.stat("p/f")?);
    t.wait_past(f.ctime.max(q.ctime).max(p.ctime))?;
    t.step("the file moves from one to the other");
    t.rename("p/f", "q/f")?;
    let (p2, q2, f2) = (t.stat("p")?, t.stat("q")?, t.stat("q/f")?);
    holds("the old parent's times move", p2.mtime > p.mtime && p2.ctime > p.ctime, p2)?;
    holds("the new parent's times move", q2.mtime > q.mtime && q2.ctime > q.ctime, q2)?;
    equal("mtime of the file", f2.mtime, f.mtime)?;
    t.observe("ctime-of-the-file-moves", f2.ctime > f.ctime);
    Ok(())
}

fn open_file(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    let file = t.create("a")?;
    file.write_at("one", 0)?;
    t.rename("a", "d/b")?;
    t.step("the handle writes, the new name reads");
    file.write_at("two", 3)?;
    same_data("data", &t.get("d/b")?, b"onetwo")?;
    t.step("its directory is renamed as well");
    t.rename("d", "e")?;
    file.write_at("!", 6)?;
    same_data("data", &t.get("e/b")?, b"onetwo!")?;
    refused(t.stat("d/b"), Errno::NOENT)
}

fn special_files(t: &Case<'_>) -> Outcome {
    t.mknod("fifo", FileType::Fifo, 0o600, (0, 0))?;
    t.put("f", "x")?;
    t.step("a fifo over a file");
    t.rename("fifo", "f")?;
    equal("type", t.stat("f")?.kind(), FileType::Fifo)?;
    equal("names", t.names(".")?, vec!["f".to_owned()])
}

fn sticky(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.step("another's file in a directory with the sticky bit");
    t.mkdir("d")?;
    t.chmod("d", 0o1777)?;
    t.put("d/root", "x")?;
    t.ordinary(|t| {
        t.put("d/mine", "y")?;
        refused(t.rename("d/root", "d/taken"), Errno::PERM)?;
        refused(t.rename("d/mine", "d/root"), Errno::PERM)?;
        t.rename("d/mine", "d/still-mine")?;
        Ok(())
    })?;
    equal("names", t.names("d")?, vec!["root".to_owned(), "still-mine".to_owned()])
}
