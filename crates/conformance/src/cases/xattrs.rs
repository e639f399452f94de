//! Extended attributes: values, sizes, names, name spaces.

use super::prelude::*;
use crate::client::XattrFlags;

pub(super) const CASES: &[Definition] = &[
    case("xattrs/set-get-list-and-remove", basics),
    case("xattrs/create-and-replace-flags", flags),
    case("xattrs/values-of-no-bytes-any-bytes-and-many-bytes", values),
    case("xattrs/size-query-and-a-buffer-too-small-is-erange", sizes),
    case("xattrs/names-up-to-255-bytes-and-longer-are-erange", names),
    case("xattrs/unknown-name-spaces-and-empty-names-are-refused", name_spaces),
    case("xattrs/handle-and-name-lead-to-the-same", by_handle),
    case("xattrs/directories-have-them-and-fifos-do-not-have-users'", kinds),
    case("xattrs/user's-on-a-symlink-are-eperm", symlink),
    case("xattrs/trusted-are-root's", trusted),
    case("xattrs/security-are-set-by-root-and-read-by-all", security),
    case("xattrs/user's-follow-the-file's-mode", rights),
    case("xattrs/setting-moves-ctime-and-not-mtime", times),
    case("xattrs/stay-over-rename-link-and-truncate", stay),
    case("xattrs/twenty-names-come-in-one-list", many),
    case("xattrs/a-capability-goes-with-the-first-write", capability),
];

/// Skips the case where the file system has no attributes of users.
fn probe(t: &Case<'_>) -> Outcome {
    t.put("probe", "x")?;
    let result = t.xattr_set("probe", "user.probe", "x");
    t.unlink("probe")?;
    match result {
        Err(Errno::OPNOTSUPP) => Err(Stop::skip("the file system has no user. attributes")),
        other => Ok(other?),
    }
}

fn basics(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.step("set and get");
    t.xattr_set("f", "user.a", "value")?;
    same_data("value", &t.xattr_get("f", "user.a")?, b"value")?;
    t.xattr_set("f", "user.a", "other")?;
    same_data("value", &t.xattr_get("f", "user.a")?, b"other")?;
    t.xattr_set("f", "user.b", "b")?;
    equal("list", t.xattr_list("f")?, vec!["user.a".to_owned(), "user.b".to_owned()])?;
    t.step("remove");
    t.xattr_remove("f", "user.a")?;
    refused(t.xattr_get("f", "user.a"), Errno::NODATA)?;
    refused(t.xattr_remove("f", "user.a"), Errno::NODATA)?;
    equal("list", t.xattr_list("f")?, vec!["user.b".to_owned()])?;
    refused(t.xattr_get("missing", "user.a"), Errno::NOENT)
}

fn flags(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.step("replace what is not there, create it, create it again, replace it");
    refused(t.xattr_set_with("f", "user.a", "1", XattrFlags::REPLACE), Errno::NODATA)?;
    t.xattr_set_with("f", "user.a", "2", XattrFlags::CREATE)?;
    refused(t.xattr_set_with("f", "user.a", "3", XattrFlags::CREATE), Errno::EXIST)?;
    t.xattr_set_with("f", "user.a", "4", XattrFlags::REPLACE)?;
    same_data("value", &t.xattr_get("f", "user.a")?, b"4")?;
    t.step("a bit that nobody knows");
    refused(t.xattr_set_with("f", "user.a", "5", XattrFlags::from_bits_retain(64)), Errno::INVAL)
}

fn values(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.step("no bytes, and every byte");
    t.xattr_set("f", "user.empty", "")?;
    same_data("empty", &t.xattr_get("f", "user.empty")?, b"")?;
    let all: Vec<u8> = (0..=255).collect();
    t.xattr_set("f", "user.all", &all)?;
    same_data("all", &t.xattr_get("f", "user.all")?, &all)?;
    t.step("many: how many is the file system's business");
    for len in [1000, 3000, 30_000, 65_536] {
        let value = vec![b'v'; len];
        let result = t.xattr_set("f", format!("user.{len}"), &value);
        t.observe_result(&format!("{len}-bytes"), &result);
        if result.is_ok() {
            same_data("value", &t.xattr_get("f", format!("user.{len}"))?, &value)?;
            t.xattr_remove("f", format!("user.{len}"))?;
        }
    }
    refused(t.xattr_set("f", "user.huge", vec![0; 65_537]), Errno::TOOBIG)
}

fn sizes(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.xattr_set("f", "user.a", "0123456789")?;
    t.step("how long is it?");
    equal("value", t.xattr_get_into("f", "user.a", &mut [])?, 10)?;
    equal("list", t.xattr_list_into("f", &mut [])? >= 7, true)?;
    t.step("buffers of 9, 10 and 11 bytes");
    refused(t.xattr_get_into("f", "user.a", &mut [0; 9]), Errno::RANGE)?;
    equal("value", t.xattr_get_into("f", "user.a", &mut [0; 10])?, 10)?;
    equal("value", t.xattr_get_into("f", "user.a", &mut [0; 11])?, 10)?;
    refused(t.xattr_list_into("f", &mut [0; 3]), Errno::RANGE)
}

fn names(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.step("255 bytes");
    let longest = format!("user.{}", "n".repeat(250));
    t.xattr_set("f", &longest, "x")?;
    same_data("value", &t.xattr_get("f", &longest)?, b"x")?;
    equal("list", t.xattr_list("f")?, vec![longest.clone()])?;
    t.step("256 bytes");
    let long = format!("{longest}n");
    refused(t.xattr_set("f", &long, "x"), Errno::RANGE)?;
    refused(t.xattr_get("f", &long), Errno::RANGE)?;
    t.step("bytes that are not text");
    t.xattr_set("f", b"user.\xff \n", "odd")?;
    same_data("value", &t.xattr_get("f", b"user.\xff \n")?, b"odd")
}

fn name_spaces(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.step("set");
    refused(t.xattr_set("f", "nospace", "x"), Errno::OPNOTSUPP)?;
    refused(t.xattr_set("f", "other.name", "x"), Errno::OPNOTSUPP)?;
    refused(t.xattr_set("f", "", "x"), Errno::RANGE)?;
    refused(t.xattr_set("f", "user.", "x"), Errno::INVAL)?;
    t.step("get");
    refused(t.xattr_get("f", "nospace"), Errno::OPNOTSUPP)?;
    refused(t.xattr_get("f", "other.name"), Errno::OPNOTSUPP)?;
    equal("list", t.xattr_list("f")?.len(), 0)
}

fn by_handle(t: &Case<'_>) -> Outcome {
    probe(t)?;
    let file = t.create("f")?;
    t.step("set by one, got by the other");
    file.xattr_set("user.a", "by handle")?;
    same_data("by name", &t.xattr_get("f", "user.a")?, b"by handle")?;
    t.xattr_set("f", "user.a", "by name")?;
    same_data("by handle", &file.xattr_get("user.a")?, b"by name")
}

fn kinds(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.mkdir("d")?;
    t.mknod("p", FileType::Fifo, 0o600, (0, 0))?;
    t.step("a directory");
    t.xattr_set("d", "user.a", "dir")?;
    same_data("value", &t.xattr_get("d", "user.a")?, b"dir")?;
    equal("a file made in it has none", t.create("d/f").and_then(|_| t.xattr_list("d/f"))?.len(), 0)?;
    t.step("a fifo");
    refused(t.xattr_set("p", "user.a", "x"), Errno::PERM)?;
    refused(t.xattr_get("p", "user.a"), Errno::NODATA)
}

fn symlink(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.symlink("f", "l")?;
    t.step("the link itself");
    refused(t.lxattr_set("l", "user.a", "x"), Errno::PERM)?;
    refused(t.lxattr_get("l", "user.a"), Errno::NODATA)?;
    t.step("its target");
    t.xattr_set("l", "user.a", "x")?;
    same_data("value", &t.xattr_get("f", "user.a")?, b"x")
}

fn trusted(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "x")?;
    t.chmod("f", 0o666)?;
    t.step("root");
    let result = t.xattr_set("f", "trusted.a", "secret");
    t.observe_result("set", &result);
    if result.is_err() {
        return Ok(());
    }
    same_data("value", &t.xattr_get("f", "trusted.a")?, b"secret")?;
    t.symlink("f", "l")?;
    t.observe_result("on-a-symlink", &t.lxattr_set("l", "trusted.a", "x"));
    t.step("an ordinary user neither sees nor sets them");
    t.ordinary(|t| {
        refused(t.xattr_set("f", "trusted.b", "x"), Errno::PERM)?;
        refused(t.xattr_get("f", "trusted.a"), Errno::NODATA)?;
        equal("list", t.xattr_list("f")?.len(), 0)
    })
}

fn security(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "x")?;
    t.chmod("f", 0o666)?;
    t.step("root");
    let result = t.xattr_set("f", "security.transom", "label");
    t.observe_result("set", &result);
    if result.is_err() {
        return Ok(());
    }
    t.step("an ordinary user");
    t.ordinary(|t| {
        same_data("value", &t.xattr_get("f", "security.transom")?, b"label")?;
        refused(t.xattr_set("f", "security.transom", "x"), Errno::PERM)?;
        refused(t.xattr_remove("f", "security.transom"), Errno::PERM)
    })
}

fn rights(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.chmod(".", 0o777)?;
    t.step("the owner's bits");
    t.ordinary(|t| {
        t.put("f", "x")?;
        t.xattr_set("f", "user.a", "x")?;
        t.chmod("f", 0o400)?;
        refused(t.xattr_set("f", "user.a", "y"), Errno::ACCESS)?;
        refused(t.xattr_remove("f", "user.a"), Errno::ACCESS)?;
        same_data("value", &t.xattr_get("f", "user.a")?, b"x")?;
        t.chmod("f", 0o200)?;
        refused(t.xattr_get("f", "user.a"), Errno::ACCESS)?;
        Ok(t.xattr_set("f", "user.a", "z")?)
    })
}

fn times(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    let before = t.stat("f")?;
    t.wait_past(before.ctime)?;
    t.step("set");
    t.xattr_set("f", "user.a", "x")?;
    let after = t.stat("f")?;
    holds("ctime moves", after.ctime > before.ctime, after)?;
    equal("mtime", after.mtime, before.mtime)?;
    t.wait_past(after.ctime)?;
    t.step("get, list");
    t.xattr_get("f", "user.a")?;
    t.xattr_list("f")?;
    equal("ctime", t.stat("f")?.ctime, after.ctime)?;
    t.step("remove");
    t.xattr_remove("f", "user.a")?;
    holds("ctime moves", t.stat("f")?.ctime > after.ctime, t.stat("f")?)
}

fn stay(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "data")?;
    t.xattr_set("f", "user.a", "x")?;
    t.step("rename, link, truncate, chmod");
    t.rename("f", "g")?;
    t.link("g", "h")?;
    t.truncate("g", 0)?;
    t.chmod("g", 0o600)?;
    same_data("value", &t.xattr_get("h", "user.a")?, b"x")
}

fn many(t: &Case<'_>) -> Outcome {
    probe(t)?;
    t.put("f", "x")?;
    t.step("twenty");
    let mut expected: Vec<_> = (0..20).map(|index| format!("user.name-{index}")).collect();
    for name in &expected {
        t.xattr_set("f", name, name)?;
    }
    expected.sort();
    equal("list", t.xattr_list("f")?, expected.clone())?;
    for name in &expected {
        same_data("value", &t.xattr_get("f", name)?, name.as_bytes())?;
    }
    Ok(())
}

fn capability(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.put("f", "x")?;
    t.step("a file capability: version 2, CAP_NET_RAW permitted");
    let mut value = [0u8; 20];
    value[3] = 2;
    value[5] = 0x20;
    let result = t.xattr_set("f", "security.capability", value);
    t.observe_result("set", &result);
    if result.is_err() {
        return Ok(());
    }
    same_data("value", &t.xattr_get("f", "security.capability")?, &value)?;
    t.step("a write takes it away, root's too");
    t.open("f", OFlags::WRONLY)?.write_at("y", 0)?;
    refused(t.xattr_get("f", "security.capability"), Errno::NODATA)?;
    t.step("so does a change of owner");
    t.xattr_set("f", "security.capability", value)?;
    t.chown("f", 1000, 1000)?;
    refused(t.xattr_get("f", "security.capability"), Errno::NODATA)
}
