//! The file system as a whole: statfs, statx, inode flags, notifications, mount boundaries.

use rustix::fs::{AtFlags, CWD, IFlags, StatxFlags, inotify};

use super::prelude::*;

pub(super) const CASES: &[Definition] = &[
    case("tree/statfs-counts-blocks-and-tells-the-longest-name", statfs),
    case("tree/statfs-of-a-missing-name-is-enoent", statfs_errors),
    case("tree/statx-answers-the-basic-mask-and-names-the-mount", statx),
    case("tree/statx-attributes-and-types-of-synchronisation", statx_sync),
    case("tree/inode-numbers-are-stable-and-different", inode_numbers),
    case("tree/block-size-of-files-is-a-power-of-two", block_size),
    case("tree/inode-flags-are-read-and-set-where-the-host-has-them", flags),
    case("tree/the-immutable-flag-refuses-every-change", immutable),
    case("tree/the-append-only-flag-refuses-all-but-appending", append_only),
    case("tree/inotify-tells-of-one's-own-changes", notify),
    case("tree/rename-and-link-out-of-the-file-system-are-exdev", across_mounts),
    case("tree/openat-relative-to-a-renamed-directory-goes-on", relative),
    case("tree/current-directory-that-is-removed-has-no-entries", removed_current),
    case("tree/exec-of-a-script-without-rights-is-eacces", exec),
];

fn statfs(t: &Case<'_>) -> Outcome {
    let space = t.statfs(".")?;
    holds("a block has a size", space.block_size.is_power_of_two(), space)?;
    holds("no more free than there are", space.blocks_free <= space.blocks, space)?;
    equal("longest name", space.name_len_max, 255)?;
    t.observe("block-size", space.block_size);
    t.observe("blocks", space.blocks);
    t.step("of a file and of a symlink's target");
    t.put("f", "x")?;
    t.symlink("f", "l")?;
    equal("blocks", t.statfs("f")?.blocks, space.blocks)?;
    equal("blocks", t.statfs("l")?.blocks, space.blocks)
}

fn statfs_errors(t: &Case<'_>) -> Outcome {
    refused(t.statfs("missing").map(drop), Errno::NOENT)?;
    t.put("f", "")?;
    refused(t.statfs("f/x").map(drop), Errno::NOTDIR)
}

fn statx(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.put("f", "x")?;
    t.step("everything is asked for");
    let found = rustix::fs::statx(CWD, "f", AtFlags::empty(), StatxFlags::ALL | StatxFlags::MNT_ID)?;
    let basic = StatxFlags::BASIC_STATS.bits();
    equal("basic mask", found.stx_mask & basic, basic)?;
    t.observe("birth", found.stx_mask & StatxFlags::BTIME.bits() != 0);
    let here = rustix::fs::statx(CWD, ".", AtFlags::empty(), StatxFlags::MNT_ID)?;
    equal("mount", found.stx_mnt_id, here.stx_mnt_id)?;
    t.step("it agrees with stat");
    let attr = t.stat("f")?;
    equal("inode and size", (found.stx_ino, found.stx_size), (attr.ino, attr.size))
}

fn statx_sync(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.put("f", "data")?;
    t.step("as it is, forced, and not forced");
    for flags in [AtFlags::empty(), AtFlags::STATX_FORCE_SYNC, AtFlags::STATX_DONT_SYNC] {
        let found = rustix::fs::statx(CWD, "f", flags, StatxFlags::BASIC_STATS)?;
        equal("size", found.stx_size, 4)?;
        equal("no flag that the mask lacks", found.stx_attributes.bits() & !found.stx_attributes_mask.bits(), 0)?;
    }
    Ok(())
}

fn inode_numbers(t: &Case<'_>) -> Outcome {
    t.step("a hundred files");
    let mut numbers = Vec::new();
    for index in 0..100 {
        numbers.push(t.create(format!("f{index}"))?.stat()?.ino);
    }
    for (index, number) in numbers.iter().enumerate() {
        equal("again", t.stat(format!("f{index}"))?.ino, *number)?;
    }
    numbers.sort();
    numbers.dedup();
    equal("different numbers", numbers.len(), 100)
}

fn block_size(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let size = t.stat("f")?.blksize;
    holds("a power of two", size.is_power_of_two() && size >= 512, size)
}

fn flags(t: &Case<'_>) -> Outcome {
    let file = t.create("f")?;
    t.step("get");
    let found = rustix::fs::ioctl_getflags(file.descriptor()?);
    t.observe_result("get", &found);
    let Ok(found) = found else { return Ok(()) };
    t.step("set no-dump");
    let result = rustix::fs::ioctl_setflags(file.descriptor()?, found | IFlags::NODUMP);
    t.observe_result("set", &result);
    if result.is_ok() {
        let now = rustix::fs::ioctl_getflags(file.descriptor()?)?;
        equal("no-dump is set", now.contains(IFlags::NODUMP), true)?;
    }
    Ok(())
}

/// Runs `body` on a file with the flag, and takes it off again, so that the file can be removed.
fn with_flag(t: &Case<'_>, flag: IFlags, body: impl FnOnce() -> Outcome) -> Outcome {
    t.require_root()?;
    t.put("f", "data")?;
    let file = t.open("f", OFlags::RDONLY)?;
    let set = rustix::fs::ioctl_getflags(file.descriptor()?)
        .and_then(|flags| rustix::fs::ioctl_setflags(file.descriptor().map_err(|_| Errno::BADF)?, flags | flag));
    t.observe_result("set", &set);
    if set.is_err() {
        return Ok(());
    }
    let outcome = body();
    let flags = rustix::fs::ioctl_getflags(file.descriptor()?)?;
    rustix::fs::ioctl_setflags(file.descriptor()?, flags - flag)?;
    outcome
}

fn immutable(t: &Case<'_>) -> Outcome {
    t.step("each change");
    with_flag(t, IFlags::IMMUTABLE, || {
        refused(t.open("f", OFlags::WRONLY), Errno::PERM)?;
        refused(t.unlink("f"), Errno::PERM)?;
        refused(t.rename("f", "g"), Errno::PERM)?;
        refused(t.link("f", "g"), Errno::PERM)?;
        refused(t.chmod("f", 0o600), Errno::PERM)?;
        refused(t.chown("f", 1, 1), Errno::PERM)?;
        refused(t.truncate("f", 0), Errno::PERM)?;
        same_data("data", &t.get("f")?, b"data")
    })
}

fn append_only(t: &Case<'_>) -> Outcome {
    t.step("each change");
    with_flag(t, IFlags::APPEND, || {
        refused(t.open("f", OFlags::WRONLY), Errno::PERM)?;
        refused(t.open("f", OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC), Errno::PERM)?;
        refused(t.unlink("f"), Errno::PERM)?;
        refused(t.truncate("f", 0), Errno::PERM)?;
        t.open("f", OFlags::WRONLY | OFlags::APPEND)?.write("+")?;
        same_data("data", &t.get("f")?, b"data+")
    })
}

fn notify(t: &Case<'_>) -> Outcome {
    use std::mem::MaybeUninit;
    t.kernel()?;
    t.step("a watch on the directory");
    let queue = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    t.mkdir("d")?;
    inotify::add_watch(&queue, "d", inotify::WatchFlags::ALL_EVENTS)?;
    t.step("create, write, rename, unlink");
    t.put("d/a", "x")?;
    t.rename("d/a", "d/b")?;
    t.chmod("d/b", 0o600)?;
    t.unlink("d/b")?;
    let mut buf = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&queue, &mut buf);
    let mut found = inotify::ReadFlags::empty();
    while let Ok(event) = reader.next() {
        found |= event.events();
    }
    type Flags = inotify::ReadFlags;
    let expected = [Flags::CREATE, Flags::MODIFY, Flags::CLOSE_WRITE, Flags::MOVED_FROM, Flags::MOVED_TO];
    for flag in expected.into_iter().chain([Flags::ATTRIB, Flags::DELETE]) {
        holds("each kind of event came", found.contains(flag), (flag, found))?;
    }
    Ok(())
}

fn across_mounts(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.put("f", "x")?;
    t.step("to /proc and from it");
    if !t.exists("/proc/self/comm")? {
        return Err(Stop::skip("/proc is not mounted"));
    }
    refused(t.rename("f", "/proc/transom-cases"), Errno::XDEV)?;
    refused(t.link("/proc/self/comm", "g"), Errno::XDEV)?;
    same_data("data", &t.get("f")?, b"x")
}

fn relative(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.mkdir("d")?;
    t.put("d/f", "x")?;
    let dir = t.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    t.step("the directory moves; names are looked up in it");
    t.mkdir("e")?;
    t.rename("d", "e/moved")?;
    let at = dir.descriptor()?;
    let file = rustix::fs::openat(at, "f", OFlags::RDONLY, 0.into())?;
    equal("inode", rustix::fs::fstat(&file)?.st_ino, t.stat("e/moved/f")?.ino)?;
    rustix::fs::mkdirat(at, "sub", 0o755.into())?;
    rustix::fs::renameat(at, "f", at, "sub/g")?;
    same_data("data", &t.get("e/moved/sub/g")?, b"x")
}

fn removed_current(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.mkdir("d")?;
    t.step("another process sits in it");
    t.other_process(|inner| {
        rustix::process::chdir("d")?;
        inner.rmdir("../d")?;
        refused(inner.create("f"), Errno::NOENT)?;
        refused(inner.stat("f"), Errno::NOENT)?;
        equal("links", inner.stat(".")?.nlink, 0)
    })
}

fn exec(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.put("run", "#!/nowhere/interpreter\n")?;
    t.step("without the right to execute, then without an interpreter");
    let error = |name: &str| std::process::Command::new(name).spawn().map(drop).map_err(|error| error.kind());
    equal("exec", error("./run"), Err(std::io::ErrorKind::PermissionDenied))?;
    t.chmod("run", 0o755)?;
    equal("exec", error("./run"), Err(std::io::ErrorKind::NotFound))
}
