//! Times: which operations update them, and which set them.

use super::prelude::*;
use crate::client::Attr;

/// One of several changes that a case makes.
type Change<'c> = &'c dyn Fn() -> Result<(), Errno>;

pub(super) const CASES: &[Definition] = &[
    case("times/utimens-sets-seconds-and-nanoseconds", nanoseconds),
    case("times/utimens-omit-keeps-and-now-takes-the-clock", omit_and_now),
    case("times/utimens-omitting-both-changes-nothing", omit_both),
    case("times/utimens-moves-ctime-to-now", utimens_ctime),
    case("times/utimens-before-1970-and-after-2038", far_times),
    case("times/utimens-with-wrong-nanoseconds-is-einval", bad_nanoseconds),
    case("times/utimens-of-a-symlink-leaves-its-target", symlink),
    case("times/utimens-by-a-stranger-is-eperm-and-now-needs-write", rights),
    case("times/a-write-moves-mtime-and-ctime", write),
    case("times/an-empty-write-moves-nothing", empty_write),
    case("times/a-read-moves-at-most-atime", read),
    case("times/truncate-moves-mtime-and-ctime-when-the-size-changes", truncate),
    case("times/chmod-chown-and-link-move-ctime-only", ctime_only),
    case("times/open-stat-and-close-move-nothing", nothing),
    case("times/noatime-handle-leaves-atime", noatime),
    case("times/set-times-survive-close-and-reopen-after-a-write", survive_close),
    case("times/birth-time-stays", birth),
];

const LONG_AGO: Time = Time { sec: 1_000_000_000, nsec: 123_456_789 };

/// A file whose atime and mtime are long ago, and whose ctime is past on the file system's clock.
fn old_file(t: &Case<'_>, name: &str) -> Result<Attr, Errno> {
    t.put(name, "data")?;
    t.utimens(name, SetTime::At(LONG_AGO), SetTime::At(LONG_AGO))?;
    let attr = t.stat(name)?;
    t.wait_past(attr.ctime)?;
    Ok(attr)
}

fn nanoseconds(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.step("two times with nanoseconds");
    let (atime, mtime) =
        (Time { sec: 1_234_567_890, nsec: 111_222_333 }, Time { sec: 1_300_000_000, nsec: 999_999_999 });
    t.utimens("f", SetTime::At(atime), SetTime::At(mtime))?;
    let attr = t.stat("f")?;
    equal("atime", attr.atime, atime)?;
    equal("mtime", attr.mtime, mtime)?;
    t.step("by handle");
    let file = t.open("f", OFlags::RDONLY)?;
    file.utimens(SetTime::At(mtime), SetTime::At(atime))?;
    equal("times", (t.stat("f")?.atime, t.stat("f")?.mtime), (mtime, atime))?;
    t.step("of a directory");
    t.mkdir("d")?;
    t.utimens("d", SetTime::At(atime), SetTime::At(mtime))?;
    equal("times", (t.stat("d")?.atime, t.stat("d")?.mtime), (atime, mtime))
}

fn omit_and_now(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("mtime now, atime omitted");
    t.utimens("f", SetTime::Omit, SetTime::Now)?;
    let attr = t.stat("f")?;
    equal("atime", attr.atime, LONG_AGO)?;
    holds("mtime is later than the ctime before", attr.mtime > before.ctime, attr)?;
    t.step("atime now, mtime set");
    t.utimens("f", SetTime::Now, SetTime::At(LONG_AGO))?;
    let attr = t.stat("f")?;
    equal("mtime", attr.mtime, LONG_AGO)?;
    holds("atime is later than the ctime before", attr.atime > before.ctime, attr)
}

fn omit_both(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("nothing is set");
    t.utimens("f", SetTime::Omit, SetTime::Omit)?;
    equal("attributes", t.stat("f")?, before)
}

fn utimens_ctime(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("the same times again");
    t.utimens("f", SetTime::At(LONG_AGO), SetTime::At(LONG_AGO))?;
    let after = t.stat("f")?;
    holds("ctime moves", after.ctime > before.ctime, after)?;
    equal("mtime", after.mtime, LONG_AGO)
}

fn far_times(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    for (key, sec) in [("1969", -1), ("1902", -(1i64 << 31)), ("2039", (1i64 << 31) + 7), ("2200", 7_258_118_400)] {
        t.step(key);
        let time = Time { sec, nsec: 5 };
        t.utimens("f", SetTime::At(time), SetTime::At(time))?;
        let found = t.stat("f")?.mtime;
        t.observe(key, if found == time { "kept".to_owned() } else { format!("{}.{}", found.sec, found.nsec) });
    }
    Ok(())
}

fn bad_nanoseconds(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("a thousand million nanoseconds");
    let wrong = SetTime::At(Time { sec: 1, nsec: 1_000_000_000 });
    refused(t.utimens("f", wrong, SetTime::Omit), Errno::INVAL)?;
    refused(t.utimens("f", SetTime::Now, wrong), Errno::INVAL)?;
    equal("attributes", t.stat("f")?, before)?;
    refused(t.utimens("missing", SetTime::Now, SetTime::Now), Errno::NOENT)
}

fn symlink(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.symlink("f", "l")?;
    let target = t.stat("f")?;
    t.step("the link's own times");
    t.lutimens("l", SetTime::At(LONG_AGO), SetTime::At(LONG_AGO))?;
    equal("mtime of the link", t.lstat("l")?.mtime, LONG_AGO)?;
    equal("attributes of the target", t.stat("f")?, target)?;
    t.step("the target's, through the link");
    t.utimens("l", SetTime::Omit, SetTime::At(LONG_AGO))?;
    equal("mtime of the target", t.stat("f")?.mtime, LONG_AGO)
}

fn rights(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.make("writable", 0o666)?;
    t.make("readable", 0o644)?;
    t.step("a stranger");
    t.ordinary(|t| {
        let set = SetTime::At(LONG_AGO);
        t.utimens("writable", SetTime::Now, SetTime::Now)?;
        refused(t.utimens("readable", SetTime::Now, SetTime::Now), Errno::ACCESS)?;
        refused(t.utimens("writable", set, set), Errno::PERM)?;
        refused(t.utimens("writable", SetTime::Omit, SetTime::Now), Errno::PERM)?;
        Ok(t.utimens("readable", SetTime::Omit, SetTime::Omit)?)
    })
}

fn write(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("a write that grows, and one that does not");
    t.open("f", OFlags::WRONLY)?.write_at("longer data", 0)?;
    let grown = t.stat("f")?;
    holds("mtime moves to now", grown.mtime > before.ctime, grown)?;
    holds("ctime moves", grown.ctime > before.ctime, grown)?;
    equal("atime", grown.atime, LONG_AGO)?;
    t.wait_past(grown.ctime)?;
    t.open("f", OFlags::WRONLY)?.write_at("x", 0)?;
    let after = t.stat("f")?;
    holds("both move", after.mtime > grown.mtime && after.ctime > grown.ctime, after)
}

fn empty_write(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("no bytes");
    equal("written", t.open("f", OFlags::WRONLY)?.write_at("", 0)?, 0)?;
    equal("attributes", t.stat("f")?, before)
}

fn read(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("a read");
    t.get("f")?;
    let after = t.stat("f")?;
    equal("mtime", after.mtime, before.mtime)?;
    equal("ctime", after.ctime, before.ctime)?;
    t.observe("atime-moves", after.atime > before.atime);
    Ok(())
}

fn truncate(t: &Case<'_>) -> Outcome {
    let mut before = old_file(t, "f")?;
    let file = t.open("f", OFlags::RDWR)?;
    for len in [2, 1000, 0] {
        t.step(&format!("to {len} bytes"));
        file.truncate(len)?;
        let after = t.stat("f")?;
        holds("mtime and ctime move", after.mtime > before.mtime && after.ctime > before.ctime, after)?;
        t.wait_past(after.ctime)?;
        before = after;
    }
    t.step("by path");
    t.truncate("f", 5)?;
    let after = t.stat("f")?;
    holds("mtime and ctime move", after.mtime > before.mtime && after.ctime > before.ctime, after)
}

fn ctime_only(t: &Case<'_>) -> Outcome {
    let mut before = old_file(t, "f")?;
    let identity = t.identity();
    let changes: [(&str, Change<'_>); 4] = [
        ("chmod", &|| t.chmod("f", 0o600)),
        ("chown", &|| t.chown("f", identity.uid, identity.gid)),
        ("link", &|| t.link("f", "g")),
        ("unlink", &|| t.unlink("g")),
    ];
    for (what, change) in changes {
        t.step(what);
        change()?;
        let after = t.stat("f")?;
        holds("ctime moves", after.ctime > before.ctime, after)?;
        equal("atime and mtime", (after.atime, after.mtime), (LONG_AGO, LONG_AGO))?;
        t.wait_past(after.ctime)?;
        before = after;
    }
    Ok(())
}

fn nothing(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("open for writing, stat, seek, sync, close");
    let file = t.open("f", OFlags::RDWR)?;
    file.stat()?;
    file.seek(SeekFrom::End(0))?;
    file.sync()?;
    file.close()?;
    t.open("f", OFlags::WRONLY | OFlags::CREATE)?.close()?;
    equal("attributes", t.stat("f")?, before)
}

fn noatime(t: &Case<'_>) -> Outcome {
    let before = old_file(t, "f")?;
    t.step("a read with O_NOATIME");
    t.open("f", OFlags::RDONLY | OFlags::NOATIME)?.read_all()?;
    equal("atime", t.stat("f")?.atime, before.atime)
}

fn survive_close(t: &Case<'_>) -> Outcome {
    t.step("as tar does: write, set the times, close");
    let file = t.create("f")?;
    file.write_at([1; 100_000], 0)?;
    file.utimens(SetTime::At(LONG_AGO), SetTime::At(LONG_AGO))?;
    file.close()?;
    equal("mtime", t.stat("f")?.mtime, LONG_AGO)?;
    t.step("and once more after a sync");
    let file = t.open("f", OFlags::RDWR)?;
    file.sync()?;
    equal("mtime", file.stat()?.mtime, LONG_AGO)
}

fn birth(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    let first = t.stat("f")?;
    t.observe("is-told", first.btime.is_some());
    t.wait_past(first.ctime)?;
    t.step("changes of all kinds");
    t.open("f", OFlags::WRONLY)?.write_at("longer", 0)?;
    t.chmod("f", 0o600)?;
    t.rename("f", "g")?;
    equal("birth", t.stat("g")?.btime, first.btime)
}
