//! Names: their length, their bytes, and paths made of them.

use super::prelude::*;

pub(super) const CASES: &[Definition] = &[
    case("names/255-bytes-work-in-every-operation", longest),
    case("names/256-bytes-are-enametoolong-in-every-operation", too_long),
    case("names/any-bytes-but-slash-and-nul-come-back-as-they-were", odd_bytes),
    case("names/upper-and-lower-case-are-different-names", letter_case),
    case("names/dots-lead-to-here-and-up-and-cannot-be-removed", dots),
    case("names/slashes-are-merged-and-one-at-the-end-asks-for-a-directory", slashes),
    case("names/a-path-of-4095-bytes-works-and-one-more-is-enametoolong", longest_path),
    case("names/a-tree-100-levels-deep-is-walked-and-its-top-renamed", deep_tree),
    case("names/a-name-is-free-again-at-once-after-its-removal", reuse),
    case("names/a-name-that-was-missing-is-found-once-created-by-another-process", negative),
];

fn longest(t: &Case<'_>) -> Outcome {
    let (a, b) = ("a".repeat(255), "b".repeat(255));
    t.step("file, directory, symlink, link, fifo");
    t.put(&a, "x")?;
    t.rename(&a, &b)?;
    t.link(&b, &a)?;
    equal("links", t.stat(&a)?.nlink, 2)?;
    equal("names", t.names(".")?, vec![a.clone(), b.clone()])?;
    t.unlink(&a)?;
    t.unlink(&b)?;
    t.mkdir(&a)?;
    t.symlink(&a, format!("{a}/{b}"))?;
    equal("names in it", t.names(&a)?, vec![b.clone()])?;
    equal("target", t.readlink(format!("{a}/{b}"))?, a.clone().into_bytes())?;
    t.unlink(format!("{a}/{b}"))?;
    t.rmdir(&a)?;
    t.mknod(&b, FileType::Fifo, 0o600, (0, 0))?;
    t.unlink(&b)?;
    t.step("the limit that statfs tells");
    equal("longest name", t.statfs(".")?.name_len_max, 255)
}

fn too_long(t: &Case<'_>) -> Outcome {
    let long = "n".repeat(256);
    t.put("f", "x")?;
    t.step("each operation by name");
    let error = Errno::NAMETOOLONG;
    refused(t.create(&long), error)?;
    refused(t.open(&long, OFlags::RDONLY), error)?;
    refused(t.stat(&long), error)?;
    refused(t.mkdir(&long), error)?;
    refused(t.mknod(&long, FileType::Fifo, 0o600, (0, 0)), error)?;
    refused(t.symlink("f", &long), error)?;
    refused(t.link("f", &long), error)?;
    refused(t.unlink(&long), error)?;
    refused(t.rmdir(&long), error)?;
    refused(t.chmod(&long, 0o600), error)?;
    refused(t.truncate(&long, 0), error)?;
    refused(t.readlink(&long), error)?;
    equal("names", t.names(".")?, vec!["f".to_owned()])
}

fn odd_bytes(t: &Case<'_>) -> Outcome {
    let all: Vec<u8> = (1..=255u8).filter(|byte| *byte != b'/').collect();
    let mut names: Vec<&[u8]> =
        vec![b"new\nline", b"tab\tand space ", b"\xff\xfe not utf-8 \xc0", b"...", b"-rf", b"\\", b"*", &all];
    t.step("each name is created, listed and removed");
    for name in &names {
        t.put(name, name)?;
        same_data("data", &t.get(name)?, name)?;
    }
    let mut found: Vec<_> = t.entries(".")?.into_iter().map(|entry| entry.name).collect();
    found.sort();
    names.sort();
    equal("names", found, names.iter().map(|name| name.to_vec()).collect())?;
    for name in &names {
        t.unlink(name)?;
    }
    equal("names left", t.names(".")?.len(), 0)
}

fn letter_case(t: &Case<'_>) -> Outcome {
    t.step("two names that differ in case");
    t.put("name", "lower")?;
    t.put("NAME", "upper")?;
    same_data("lower", &t.get("name")?, b"lower")?;
    same_data("upper", &t.get("NAME")?, b"upper")?;
    refused(t.stat("Name"), Errno::NOENT)
}

fn dots(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.step("'.' and '..' are looked up");
    equal("'d/.'", t.stat("d/.")?.ino, t.stat("d")?.ino)?;
    equal("'d/..'", t.stat("d/..")?.ino, t.stat(".")?.ino)?;
    t.step("they cannot be removed or created");
    refused(t.rmdir("d/."), Errno::INVAL)?;
    refused_any(t.rmdir("d/.."), &[Errno::NOTEMPTY, Errno::EXIST])?;
    refused_any(t.unlink("d/."), &[Errno::ISDIR, Errno::PERM, Errno::INVAL])?;
    refused(t.mkdir("d/."), Errno::EXIST)?;
    refused(t.mkdir("d/.."), Errno::EXIST)?;
    t.step("they stand in every stream once");
    let entries = t.open("d", OFlags::RDONLY)?.entries()?;
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    equal("entries", names, vec![b".".to_vec(), b"..".to_vec()])
}

fn slashes(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("d/f", "x")?;
    t.symlink("d", "l")?;
    t.step("slashes in the middle");
    same_data("data", &t.get(".///d//.//f")?, b"x")?;
    t.step("one at the end");
    equal("a directory", t.stat("d/")?.kind(), FileType::Directory)?;
    equal("a symlink to one", t.lstat("l/")?.kind(), FileType::Directory)?;
    refused(t.stat("d/f/"), Errno::NOTDIR)?;
    refused(t.unlink("d/f/"), Errno::NOTDIR)?;
    t.mkdir("new/")?;
    t.rmdir("new/")?;
    refused(t.unlink("d/"), Errno::ISDIR)
}

fn longest_path(t: &Case<'_>) -> Outcome {
    t.mkdir("d")?;
    t.put("d/f", "x")?;
    t.step("4095 bytes, most of them './'");
    let path = format!("{}{}", "./".repeat(2046), "d/f");
    equal("length", path.len(), 4095)?;
    same_data("data", &t.get(&path)?, b"x")?;
    t.step("4096 bytes");
    refused(t.stat(format!("/{path}")), Errno::NAMETOOLONG)?;
    t.step("real names: sixteen levels of 250 bytes");
    let level = "l".repeat(250);
    let mut path = level.clone();
    for _ in 0..15 {
        t.mkdir(&path)?;
        path = format!("{path}/{level}");
    }
    t.put(&path, "deep")?;
    same_data("data", &t.get(&path)?, b"deep")
}

fn deep_tree(t: &Case<'_>) -> Outcome {
    t.step("100 levels");
    let mut path = String::from("top");
    for level in 0..100 {
        t.mkdir(&path)?;
        path = format!("{path}/{level}");
    }
    t.put(&path, "bottom")?;
    let leaf = t.stat(&path)?.ino;
    t.step("the top is renamed; all that is below moves");
    t.rename("top", "summit")?;
    let renamed = path.replacen("top", "summit", 1);
    equal("inode at the bottom", t.stat(&renamed)?.ino, leaf)?;
    refused(t.stat(&path), Errno::NOENT)?;
    t.step("a hundred times up again");
    let up = format!("{}{}", renamed.rsplit_once('/').map_or("", |(dir, _)| dir), "/..".repeat(100));
    equal("inode at the top", t.stat(up)?.ino, t.stat(".")?.ino)
}

fn reuse(t: &Case<'_>) -> Outcome {
    t.step("the name is a file, a directory, a symlink, a fifo, a file");
    t.put("n", "one")?;
    t.unlink("n")?;
    refused(t.stat("n"), Errno::NOENT)?;
    t.mkdir("n")?;
    equal("type", t.stat("n")?.kind(), FileType::Directory)?;
    t.rmdir("n")?;
    t.symlink("x", "n")?;
    equal("type", t.lstat("n")?.kind(), FileType::Symlink)?;
    t.unlink("n")?;
    t.mknod("n", FileType::Fifo, 0o600, (0, 0))?;
    equal("type", t.stat("n")?.kind(), FileType::Fifo)?;
    t.unlink("n")?;
    t.put("n", "two")?;
    same_data("data", &t.get("n")?, b"two")
}

fn negative(t: &Case<'_>) -> Outcome {
    t.step("the name is missing");
    refused(t.stat("n"), Errno::NOENT)?;
    refused(t.open("n", OFlags::RDONLY), Errno::NOENT)?;
    t.step("another process creates it");
    t.other_process(|t| Ok(t.put("n", "x")?))?;
    same_data("data", &t.get("n")?, b"x")?;
    t.step("and removes it");
    t.other_process(|t| Ok(t.unlink("n")?))?;
    refused(t.stat("n"), Errno::NOENT)
}
