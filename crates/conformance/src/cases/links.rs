//! Hard links, symlinks, and the removal of names.

use super::prelude::*;

pub(super) const CASES: &[Definition] = &[
    case("links/a-second-name-shares-inode-data-and-attributes", hard_link),
    case("links/count-follows-every-link-and-unlink", counts),
    case("links/across-directories-and-to-an-unlinked-first-name", across),
    case("links/refused-for-directories-taken-names-and-missing-ones", link_errors),
    case("links/to-a-symlink-is-the-symlink-unless-following", link_to_symlink),
    case("links/to-fifos-and-sockets-work", link_to_special),
    case("links/a-link-updates-ctime-of-the-inode-and-mtime-of-the-directory", link_times),
    case("links/by-handle-gives-an-open-file-another-name", link_handle),
    case("links/of-a-file-no-longer-named-are-refused-by-handle", link_unlinked),
    case("links/five-hundred-names-of-one-inode-work", many_links),
    case("symlinks/target-comes-back-byte-for-byte", target_bytes),
    case("symlinks/targets-up-to-4095-bytes-and-one-more-is-enametoolong", long_target),
    case("symlinks/readlink-fills-a-short-buffer-and-says-no-more", short_readlink),
    case("symlinks/readlink-of-other-types-is-einval", readlink_errors),
    case("symlinks/loops-and-chains-over-40-are-eloop", loops),
    case("symlinks/size-is-the-target's-length-and-mode-is-777", symlink_attributes),
    case("symlinks/absolute-relative-and-dotdot-targets-are-followed", directions),
    case("unlink/refuses-directories-and-missing-names", unlink_errors),
    case("unlink/needs-the-right-to-write-the-directory", unlink_rights),
    case("unlink/in-a-sticky-directory-is-for-the-owner", unlink_sticky),
];

fn hard_link(t: &Case<'_>) -> Outcome {
    t.put("a", "data")?;
    t.step("a second name");
    t.link("a", "b")?;
    let (a, b) = (t.stat("a")?, t.stat("b")?);
    equal("attributes", a, b)?;
    t.step("a change by one is seen by the other");
    t.open("b", OFlags::WRONLY)?.write_at("DATA!", 0)?;
    t.chmod("a", 0o600)?;
    same_data("data", &t.get("a")?, b"DATA!")?;
    equal("size", t.stat("a")?.size, 5)?;
    equal("permissions", t.stat("b")?.permissions(), 0o600)
}

fn counts(t: &Case<'_>) -> Outcome {
    let file = t.create("a")?;
    t.step("up");
    for (name, links) in [("b", 2), ("c", 3), ("d", 4)] {
        t.link("a", name)?;
        equal("by handle", file.stat()?.nlink, links)?;
        equal("by the first name", t.stat("a")?.nlink, links)?;
        equal("by the new name", t.stat(name)?.nlink, links)?;
    }
    t.step("down");
    for (name, left) in [("a", 3), ("d", 2), ("b", 1)] {
        t.unlink(name)?;
        equal("by handle", file.stat()?.nlink, left)?;
        equal("by a name that stays", t.stat("c")?.nlink, left)?;
    }
    t.unlink("c")?;
    equal("none left", file.stat()?.nlink, 0)
}

fn across(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("a", "data")?;
    t.link("a", "d/b")?;
    t.step("the first name goes");
    t.unlink("a")?;
    same_data("data", &t.get("d/b")?, b"data")?;
    t.step("and comes back from the second");
    t.link("d/b", "a")?;
    equal("links", t.stat("a")?.nlink, 2)
}

fn link_errors(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.put("g", "y")?;
    t.mkdir("d")?;
    t.step("each with its error");
    refused(t.link("f", "g"), Errno::EXIST)?;
    refused(t.link("f", "d"), Errno::EXIST)?;
    refused(t.link("d", "e"), Errno::PERM)?;
    refused(t.link("missing", "e"), Errno::NOENT)?;
    refused(t.link("f", "missing/e"), Errno::NOENT)?;
    refused(t.link("f", "g/e"), Errno::NOTDIR)?;
    refused(t.link("f", "e/"), Errno::NOENT)?;
    equal("links", t.stat("f")?.nlink, 1)
}

fn link_to_symlink(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.symlink("f", "l")?;
    t.step("without following");
    t.link("l", "m")?;
    equal("type", t.lstat("m")?.kind(), FileType::Symlink)?;
    equal("inode", t.lstat("m")?.ino, t.lstat("l")?.ino)?;
    equal("links of the symlink", t.lstat("l")?.nlink, 2)?;
    t.step("following");
    t.link_following("l", "n")?;
    equal("inode", t.lstat("n")?.ino, t.stat("f")?.ino)
}

fn link_to_special(t: &Case<'_>) -> Outcome {
    t.mknod("fifo", FileType::Fifo, 0o600, (0, 0))?;
    t.mknod("socket", FileType::Socket, 0o600, (0, 0))?;
    t.step("a second name for each");
    t.link("fifo", "fifo2")?;
    t.link("socket", "socket2")?;
    equal("links", (t.stat("fifo")?.nlink, t.stat("socket2")?.nlink), (2, 2))?;
    equal("types", (t.stat("fifo2")?.kind(), t.stat("socket2")?.kind()), (FileType::Fifo, FileType::Socket))
}

fn link_times(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("f", "x")?;
    let (dir, file) = (t.stat("d")?, t.stat("f")?);
    t.wait_past(file.ctime.max(dir.ctime))?;
    t.step("a link");
    t.link("f", "d/g")?;
    let (dir2, file2) = (t.stat("d")?, t.stat("f")?);
    holds("ctime of the inode moves", file2.ctime > file.ctime, file2)?;
    equal("mtime of the inode", file2.mtime, file.mtime)?;
    holds("times of the directory move", dir2.mtime > dir.mtime && dir2.ctime > dir.ctime, dir2)?;
    t.wait_past(file2.ctime.max(dir2.ctime))?;
    t.step("an unlink");
    t.unlink("d/g")?;
    let (dir3, file3) = (t.stat("d")?, t.stat("f")?);
    holds("ctime of the inode moves", file3.ctime > file2.ctime, file3)?;
    holds("times of the directory move", dir3.mtime > dir2.mtime && dir3.ctime > dir2.ctime, dir3)
}

fn link_handle(t: &Case<'_>) -> Outcome {
    let file = t.create("a")?;
    file.write_at("data", 0)?;
    t.step("another name through the handle");
    file.link("b")?;
    equal("links", t.stat("a")?.nlink, 2)?;
    same_data("data", &t.get("b")?, b"data")?;
    refused(file.link("a"), Errno::EXIST)
}

fn link_unlinked(t: &Case<'_>) -> Outcome {
    let file = t.create("a")?;
    t.unlink("a")?;
    t.step("a file whose last name is gone gets none again");
    refused(file.link("b"), Errno::NOENT)
}

fn many_links(t: &Case<'_>) -> Outcome {
    t.put("first", "x")?;
    t.step("500 names");
    t.mkdir("d")?;
    for index in 0..499 {
        t.link("first", format!("d/{index}"))?;
    }
    equal("links", t.stat("first")?.nlink, 500)?;
    t.step("one inode number in the whole stream");
    let ino = t.stat("first")?.ino;
    let others = t.entries("d")?.iter().filter(|entry| entry.ino != ino).count();
    equal("entries of another inode", others, 0)
}

fn target_bytes(t: &Case<'_>) -> Outcome {
    let targets: [&[u8]; 6] = [b"x", b"//a//b/", b"sp ace\n", b"\xff\xfe", b"../../..", b"/absolute/../path"];
    t.step("each target");
    for (index, target) in targets.iter().enumerate() {
        let name = format!("l{index}");
        t.symlink(target, &name)?;
        equal("target", t.readlink(&name)?, target.to_vec())?;
    }
    t.step("an empty one is refused");
    refused(t.symlink("", "empty"), Errno::NOENT)
}

fn long_target(t: &Case<'_>) -> Outcome {
    for len in [59, 60, 255, 1024, 4094] {
        t.step(&format!("{len} bytes"));
        let target = "t".repeat(len);
        t.symlink(&target, format!("l{len}"))?;
        equal("target", t.readlink(format!("l{len}"))?, target.into_bytes())?;
    }
    t.step("4095 bytes");
    let longest = t.symlink("t".repeat(4095), "longest");
    t.observe_result("4095-bytes", &longest);
    if longest.is_ok() {
        equal("target", t.readlink("longest")?.len(), 4095)?;
    }
    t.step("4096 bytes");
    refused(t.symlink("t".repeat(4096), "long"), Errno::NAMETOOLONG)
}

fn short_readlink(t: &Case<'_>) -> Outcome {
    t.symlink("0123456789", "l")?;
    t.step("a buffer of 4 bytes");
    let mut buf = [b'-'; 8];
    equal("length", t.readlink_into("l", &mut buf[..4])?, 4)?;
    equal("buffer", &buf, b"0123----")?;
    t.step("none at all");
    refused(t.readlink_into("l", &mut []), Errno::INVAL)
}

fn readlink_errors(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.step("a file, a directory, nothing");
    refused(t.readlink("f"), Errno::INVAL)?;
    refused(t.readlink("."), Errno::INVAL)?;
    refused(t.readlink("missing"), Errno::NOENT)?;
    refused(t.readlink("f/x"), Errno::NOTDIR)
}

fn loops(t: &Case<'_>) -> Outcome {
    t.step("a link to itself, and two to each other");
    t.symlink("self", "self")?;
    t.symlink("b", "a")?;
    t.symlink("a", "b")?;
    for name in ["self", "a", "b"] {
        refused(t.stat(name), Errno::LOOP)?;
        refused(t.open(name, OFlags::RDONLY), Errno::LOOP)?;
        refused(t.open(format!("{name}/x"), OFlags::RDONLY), Errno::LOOP)?;
    }
    t.step("chains: 40 is the limit");
    t.put("0", "end")?;
    for index in 0..41 {
        t.symlink(index.to_string(), (index + 1).to_string())?;
    }
    same_data("through 40", &t.get("40")?, b"end")?;
    refused(t.stat("41"), Errno::LOOP)
}

fn symlink_attributes(t: &Case<'_>) -> Outcome {
    t.symlink("0123456789", "l")?;
    t.step("what lstat tells");
    let attr = t.lstat("l")?;
    equal("type", attr.kind(), FileType::Symlink)?;
    equal("size", attr.size, 10)?;
    equal("permissions", attr.permissions(), 0o777)?;
    equal("links", attr.nlink, 1)
}

fn directions(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.mkdir("e")?;
    t.put("e/f", "x")?;
    t.step("up and down, through a link to a directory");
    t.symlink("../e/f", "d/up")?;
    t.symlink("e", "dir")?;
    same_data("up", &t.get("d/up")?, b"x")?;
    same_data("through", &t.get("dir/f")?, b"x")?;
    equal("'..' behind a link is the target's parent", t.stat("dir/..")?.ino, t.stat(".")?.ino)?;
    t.step("absolute: the root of the client's own tree");
    t.symlink("/", "root")?;
    equal("inode", t.stat("root")?.ino, t.stat("/")?.ino)
}

fn unlink_errors(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("f", "x")?;
    t.step("each with its error");
    refused_any(t.unlink("d"), &[Errno::ISDIR, Errno::PERM])?;
    refused(t.unlink("missing"), Errno::NOENT)?;
    refused(t.unlink("f/x"), Errno::NOTDIR)?;
    refused(t.rmdir("f"), Errno::NOTDIR)?;
    equal("names", t.names(".")?.len(), 2)
}

fn unlink_rights(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.step("one's own file in a directory that is read-only");
    t.ordinary(|t| {
        t.mkdir("d")?;
        t.put("d/f", "x")?;
        t.chmod("d", 0o555)?;
        refused(t.unlink("d/f"), Errno::ACCESS)?;
        refused(t.create("d/g"), Errno::ACCESS)?;
        refused(t.rename("d/f", "f"), Errno::ACCESS)?;
        t.chmod("d", 0o755)?;
        Ok(t.unlink("d/f")?)
    })
}

fn unlink_sticky(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.mkdir("d")?;
    t.chmod("d", 0o1777)?;
    t.put("d/root", "x")?;
    t.step("another's file and directory");
    t.user(1001, 1001, &[], |t| Ok(t.mkdir("d/dir")?))?;
    t.ordinary(|t| {
        t.put("d/mine", "y")?;
        refused(t.unlink("d/root"), Errno::PERM)?;
        refused(t.rmdir("d/dir"), Errno::PERM)?;
        Ok(t.unlink("d/mine")?)
    })?;
    t.step("the directory's owner may");
    t.chown("d", 1000, 1000)?;
    t.ordinary(|t| {
        t.rmdir("d/dir")?;
        Ok(t.unlink("d/root")?)
    })
}
