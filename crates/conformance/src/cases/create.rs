//! Creating files: the flags of open.

use super::prelude::*;

pub(super) const CASES: &[Definition] = &[
    case("create/new-file-is-empty-with-one-link", new_file),
    case("create/exclusive-refuses-any-existing-name", exclusive),
    case("create/without-exclusive-opens-what-is-there", keeps_existing),
    case("create/truncate-empties-and-keeps-the-inode", truncate),
    case("create/follows-a-dangling-symlink-unless-exclusive", dangling),
    case("create/missing-parent-is-enoent-and-file-parent-enotdir", bad_parent),
    case("create/in-a-removed-directory-is-enoent", removed_parent),
    case("create/directory-flag-refuses-files-and-writing-refuses-directories", directory_flag),
    case("create/nofollow-refuses-a-symlink-at-the-end-only", no_follow),
    case("create/path-descriptor-tells-attributes-and-refuses-data", path_only),
    case("create/read-only-handle-refuses-write-and-the-reverse", access_modes),
    case("create/mode-without-rights-applies-after-the-creating-open", mode_later),
    case("create/tmpfile-has-no-name-until-linked", tmpfile),
    case("create/exclusive-tmpfile-cannot-be-linked", tmpfile_exclusive),
    case("create/tmpfile-needs-a-directory-and-a-writing-mode", tmpfile_errors),
];

fn new_file(t: &Case<'_>) -> Outcome {
    t.step("a file is created");
    let file = t.create("a")?;
    let attr = file.stat()?;
    equal("size", attr.size, 0)?;
    equal("blocks", attr.blocks, 0)?;
    equal("links", attr.nlink, 1)?;
    equal("type", attr.kind(), FileType::RegularFile)?;
    equal("permissions", attr.permissions(), 0o644)?;
    equal("owner", (attr.uid, attr.gid), (t.identity().uid, t.identity().gid))?;
    t.step("name and handle lead to the same inode");
    equal("attributes by name", t.stat("a")?.ino, attr.ino)?;
    equal("names", t.names(".")?, vec!["a".to_owned()])
}

fn exclusive(t: &Case<'_>) -> Outcome {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    t.step("one name of each kind");
    t.put("file", "x")?;
    t.mkdir("dir")?;
    t.symlink("file", "link")?;
    t.symlink("nowhere", "dangling")?;
    t.step("none can be created exclusively");
    for name in ["file", "dir", "link", "dangling"] {
        refused(t.open(name, flags), Errno::EXIST)?;
    }
    equal("the symlink's target was not created", t.exists("nowhere")?, false)?;
    same_data("the file", &t.get("file")?, b"x")
}

fn keeps_existing(t: &Case<'_>) -> Outcome {
    t.step("a file with data and its own permissions");
    t.put("a", "data")?;
    t.chmod("a", 0o600)?;
    t.step("O_CREAT on it changes neither");
    let file = t.open_mode("a", OFlags::RDWR | OFlags::CREATE, 0o777)?;
    equal("permissions", file.stat()?.permissions(), 0o600)?;
    same_data("data", &file.read_all()?, b"data")?;
    t.step("O_CREAT on a directory is refused");
    t.mkdir("d")?;
    refused(t.open("d", OFlags::RDONLY | OFlags::CREATE), Errno::ISDIR)
}

fn truncate(t: &Case<'_>) -> Outcome {
    t.step("a file with data, seen through another handle");
    t.put("a", [7; 10_000])?;
    let reader = t.open("a", OFlags::RDONLY)?;
    let before = reader.stat()?;
    t.step("O_TRUNC empties it");
    let file = t.open("a", OFlags::RDWR | OFlags::TRUNC)?;
    let after = file.stat()?;
    equal("size", after.size, 0)?;
    equal("inode", after.ino, before.ino)?;
    equal("size through the other handle", reader.stat()?.size, 0)?;
    equal("data through the other handle", reader.read_at(10, 0)?, vec![])?;
    t.step("with O_CREAT as well");
    t.put("b", "data")?;
    equal("size", t.open("b", OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?.stat()?.size, 0)
}

fn dangling(t: &Case<'_>) -> Outcome {
    t.step("a symlink to a name that is not there");
    t.mkdir("d")?;
    t.symlink("d/target", "link")?;
    refused(t.open("link", OFlags::RDONLY), Errno::NOENT)?;
    t.step("O_CREAT through it creates the target");
    t.open("link", OFlags::WRONLY | OFlags::CREATE)?.write("via link")?;
    same_data("target", &t.get("d/target")?, b"via link")?;
    equal("the link", t.lstat("link")?.kind(), FileType::Symlink)
}

fn bad_parent(t: &Case<'_>) -> Outcome {
    t.put("file", "")?;
    t.step("a parent that is missing, and one that is a file");
    let flags = OFlags::WRONLY | OFlags::CREATE;
    refused(t.open("missing/a", flags), Errno::NOENT)?;
    refused(t.open("file/a", flags), Errno::NOTDIR)?;
    refused(t.open("file/", OFlags::RDONLY), Errno::NOTDIR)?;
    refused(t.open("", flags), Errno::NOENT)?;
    t.step("a new name with a slash at the end");
    refused(t.open("new/", flags), Errno::ISDIR)?;
    equal("names", t.names(".")?, vec!["file".to_owned()])
}

fn removed_parent(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.step("a directory that is held open is removed");
    t.mkdir("d")?;
    let dir = t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    t.rmdir("d")?;
    t.step("nothing can be created in it");
    let at = dir.descriptor()?;
    let flags = OFlags::WRONLY | OFlags::CREATE;
    refused(rustix::fs::openat(at, "a", flags, 0o644.into()), Errno::NOENT)?;
    refused(rustix::fs::mkdirat(at, "a", 0o755.into()), Errno::NOENT)?;
    refused(rustix::fs::symlinkat("x", at, "a"), Errno::NOENT)?;
    equal("links of the directory", dir.stat()?.nlink, 0)
}

fn directory_flag(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("f", "")?;
    t.symlink("d", "link")?;
    t.step("O_DIRECTORY on a directory and on a symlink to it");
    t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    t.open("link", OFlags::RDONLY | OFlags::DIRECTORY)?;
    t.step("on a file it is refused");
    refused(t.open("f", OFlags::RDONLY | OFlags::DIRECTORY), Errno::NOTDIR)?;
    t.step("a directory is not opened for writing, and not read as a file");
    refused(t.open("d", OFlags::WRONLY), Errno::ISDIR)?;
    refused(t.open("d", OFlags::RDWR), Errno::ISDIR)?;
    refused(t.open("d", OFlags::RDONLY)?.read_at(10, 0), Errno::ISDIR)
}

fn no_follow(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("d/f", "x")?;
    t.symlink("d", "dlink")?;
    t.symlink("f", "d/flink")?;
    t.step("a symlink at the end is refused");
    refused(t.open("d/flink", OFlags::RDONLY | OFlags::NOFOLLOW), Errno::LOOP)?;
    refused(t.open("dlink", OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY), Errno::NOTDIR)?;
    t.step("one on the way is followed");
    same_data("data", &t.open("dlink/f", OFlags::RDONLY | OFlags::NOFOLLOW)?.read_all()?, b"x")
}

fn path_only(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.symlink("f", "link")?;
    t.step("O_PATH tells attributes");
    let file = t.open("f", OFlags::PATH)?;
    equal("inode", file.stat()?.ino, t.stat("f")?.ino)?;
    t.step("data and changes are refused");
    refused(file.read_at(1, 0), Errno::BADF)?;
    refused(file.write_at("y", 0), Errno::BADF)?;
    refused(file.truncate(0), Errno::BADF)?;
    refused(file.chmod(0o600), Errno::BADF)?;
    t.step("with O_NOFOLLOW it is the symlink itself");
    let link = t.open("link", OFlags::PATH | OFlags::NOFOLLOW)?;
    equal("type", link.stat()?.kind(), FileType::Symlink)
}

fn access_modes(t: &Case<'_>) -> Outcome {
    t.put("f", "data")?;
    t.step("a handle for reading");
    let reader = t.open("f", OFlags::RDONLY)?;
    refused(reader.write_at("x", 0), Errno::BADF)?;
    refused(reader.truncate(0), Errno::INVAL)?;
    t.step("a handle for writing");
    let writer = t.open("f", OFlags::WRONLY)?;
    refused(writer.read_at(1, 0), Errno::BADF)?;
    equal("written", writer.write_at("D", 0)?, 1)?;
    same_data("data", &reader.read_all()?, b"Data")
}

fn mode_later(t: &Case<'_>) -> Outcome {
    t.chmod(".", 0o777)?;
    t.ordinary(|t| {
        let file = t.open_mode("a", OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o000)?;
        equal("permissions", file.stat()?.permissions(), 0)?;
        file.write_at("data", 0)?;
        same_data("through the first handle", &file.read_all()?, b"data")?;
        refused(t.open("a", OFlags::RDONLY), Errno::ACCESS)?;
        refused(t.open("a", OFlags::WRONLY), Errno::ACCESS)
    })
}

fn tmpfile(t: &Case<'_>) -> Outcome {
    t.step("a file without a name");
    let file = match t.open(".", OFlags::RDWR | OFlags::TMPFILE) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => return Err(Stop::skip("the file system has no O_TMPFILE")),
        other => other?,
    };
    file.write_at("data", 0)?;
    equal("links", file.stat()?.nlink, 0)?;
    equal("names", t.names(".")?, Vec::<String>::new())?;
    t.step("it gets a name");
    file.link("a")?;
    equal("links", file.stat()?.nlink, 1)?;
    same_data("data", &t.get("a")?, b"data")?;
    equal("inode", t.stat("a")?.ino, file.stat()?.ino)?;
    t.step("a name that is taken");
    refused(file.link("a"), Errno::EXIST)
}

fn tmpfile_exclusive(t: &Case<'_>) -> Outcome {
    t.step("O_TMPFILE with O_EXCL");
    let file = match t.open(".", OFlags::RDWR | OFlags::TMPFILE | OFlags::EXCL) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => return Err(Stop::skip("the file system has no O_TMPFILE")),
        other => other?,
    };
    file.write_at("data", 0)?;
    t.step("it never gets a name");
    refused(file.link("a"), Errno::NOENT)
}

fn tmpfile_errors(t: &Case<'_>) -> Outcome {
    t.put("f", "")?;
    t.step("O_TMPFILE for reading only, on a file, on nothing");
    refused(t.open(".", OFlags::RDONLY | OFlags::TMPFILE), Errno::INVAL)?;
    refused(t.open("f", OFlags::RDWR | OFlags::TMPFILE), Errno::NOTDIR)?;
    refused(t.open("missing", OFlags::RDWR | OFlags::TMPFILE), Errno::NOENT)
}
