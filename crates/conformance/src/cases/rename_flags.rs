//! Rename with flags: NOREPLACE, EXCHANGE, WHITEOUT.

use super::prelude::*;
use crate::client::RenameFlags;

pub(super) const CASES: &[Definition] = &[
    case("rename-flags/noreplace-moves-to-a-free-name-and-refuses-a-taken-one", noreplace),
    case("rename-flags/exchange-swaps-two-files", exchange_files),
    case("rename-flags/exchange-swaps-a-file-and-a-full-directory", exchange_types),
    case("rename-flags/exchange-of-directories-updates-dotdot", exchange_directories),
    case("rename-flags/exchange-needs-both-names", exchange_missing),
    case("rename-flags/whiteout-leaves-a-device-behind", whiteout),
    case("rename-flags/combinations-without-meaning-are-einval", combinations),
];

/// Skips the case where the file system answers that it has no such flag.
fn supported(result: Result<(), Errno>, flag: &str) -> Outcome {
    match result {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Err(Stop::skip(format!("the file system has no {flag}")))
        }
        other => Ok(other?),
    }
}

fn noreplace(t: &Case<'_>) -> Outcome {
    t.put("a", "a")?;
    t.put("b", "b")?;
    t.step("the target is taken");
    let taken = t.rename_with("a", "b", RenameFlags::NOREPLACE);
    if taken == Err(Errno::INVAL) {
        return Err(Stop::skip("the file system has no RENAME_NOREPLACE"));
    }
    refused(taken, Errno::EXIST)?;
    same_data("target", &t.get("b")?, b"b")?;
    t.step("taken by the same inode");
    t.link("a", "a2")?;
    refused(t.rename_with("a", "a2", RenameFlags::NOREPLACE), Errno::EXIST)?;
    t.step("the target is free");
    t.rename_with("a", "c", RenameFlags::NOREPLACE)?;
    equal("names", t.names(".")?, vec!["a2".to_owned(), "b".to_owned(), "c".to_owned()])
}

fn exchange_files(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("a", "a")?;
    t.put("d/b", "b")?;
    let (a, b) = (t.stat("a")?.ino, t.stat("d/b")?.ino);
    t.step("swap across directories");
    supported(t.rename_with("a", "d/b", RenameFlags::EXCHANGE), "RENAME_EXCHANGE")?;
    equal("inodes", (t.stat("a")?.ino, t.stat("d/b")?.ino), (b, a))?;
    same_data("data", &t.get("a")?, b"b")?;
    same_data("data", &t.get("d/b")?, b"a")
}

fn exchange_types(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("d/inner", "x")?;
    t.put("f", "file")?;
    t.step("swap");
    supported(t.rename_with("d", "f", RenameFlags::EXCHANGE), "RENAME_EXCHANGE")?;
    same_data("the file", &t.get("d")?, b"file")?;
    equal("the directory", t.names("f")?, vec!["inner".to_owned()])
}

fn exchange_directories(t: &Case<'_>) -> Outcome {
    t.mkdir("p")?;
    t.mkdir("q")?;
    t.mkdir("p/a")?;
    t.mkdir("q/b")?;
    t.step("swap");
    supported(t.rename_with("p/a", "q/b", RenameFlags::EXCHANGE), "RENAME_EXCHANGE")?;
    equal("'..' of one", t.stat("p/a/..")?.ino, t.stat("p")?.ino)?;
    equal("'..' of the other", t.stat("q/b/..")?.ino, t.stat("q")?.ino)?;
    t.step("an ancestor and what is below it");
    refused(t.rename_with("p", "p/a", RenameFlags::EXCHANGE), Errno::INVAL)
}

fn exchange_missing(t: &Case<'_>) -> Outcome {
    t.put("a", "a")?;
    t.step("one of the names is not there");
    let missing = t.rename_with("a", "b", RenameFlags::EXCHANGE);
    if missing == Err(Errno::INVAL) {
        return Err(Stop::skip("the file system has no RENAME_EXCHANGE"));
    }
    refused(missing, Errno::NOENT)?;
    refused(t.rename_with("b", "a", RenameFlags::EXCHANGE), Errno::NOENT)?;
    equal("names", t.names(".")?, vec!["a".to_owned()])
}

fn whiteout(t: &Case<'_>) -> Outcome {
    t.put("a", "a")?;
    t.step("the old name becomes a character device 0:0");
    let result = t.rename_with("a", "b", RenameFlags::WHITEOUT);
    t.observe_result("whiteout", &result);
    if result.is_err() {
        return equal("names", t.names(".")?, vec!["a".to_owned()]);
    }
    let left = t.lstat("a")?;
    equal("type", left.kind(), FileType::CharacterDevice)?;
    equal("device", left.rdev, (0, 0))?;
    same_data("data", &t.get("b")?, b"a")
}

fn combinations(t: &Case<'_>) -> Outcome {
    t.put("a", "a")?;
    t.put("b", "b")?;
    t.step("EXCHANGE with each of the others, and a bit that nobody knows");
    let (no_replace, exchange) = (RenameFlags::NOREPLACE, RenameFlags::EXCHANGE);
    refused(t.rename_with("a", "b", exchange | no_replace), Errno::INVAL)?;
    refused(t.rename_with("a", "b", exchange | RenameFlags::WHITEOUT), Errno::INVAL)?;
    refused(t.rename_with("a", "b", RenameFlags::from_bits_retain(1 << 20)), Errno::INVAL)?;
    equal("names", t.names(".")?.len(), 2)
}
