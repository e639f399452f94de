//! Patches are what git and patch(1) read.

use std::fs;

use crate::{
    overlay_test::filled,
    patch,
    support::{Host, is_skipped},
};

#[test]
fn a_patch_is_what_git_and_patch_read() {
    if is_skipped("a_patch_is_what_git_and_patch_read") {
        return;
    }
    let host = filled();
    host.guest(|dir| {
        fs::write(dir.join("a"), "one\nand more").unwrap();
        fs::remove_file(dir.join("b")).unwrap();
        fs::write(dir.join("data"), b"\0\x01").unwrap();
        fs::write(dir.join("new\x1b"), "new\n").unwrap();
    });
    let overlay = host.open().unwrap();
    let mut text = Vec::new();
    patch(&overlay, &overlay.changes().unwrap(), &mut text).unwrap();
    let expected = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+and more\n\
                    \\ No newline at end of file\ndiff --git a/b b/b\ndeleted file mode 100644\n--- a/b\n\
                    +++ /dev/null\n\
                    @@ -1 +0,0 @@\n-two\ndiff --git a/data b/data\nnew file mode 100644\n\
                    Binary files /dev/null and b/data differ\ndiff --git \"a/new\\033\" \"b/new\\033\"\n\
                    new file mode 100644\n--- /dev/null\n+++ \"b/new\\033\"\n@@ -0,0 +1 @@\n+new\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn a_name_in_a_patch_cannot_look_like_another() {
    if is_skipped("a_name_in_a_patch_cannot_look_like_another") {
        return;
    }
    let host = Host::new();
    host.guest(|dir| fs::write(dir.join("txt.\u{202e}hs\u{2069}"), "x\n").unwrap());
    let overlay = host.open().unwrap();
    let mut text = Vec::new();
    patch(&overlay, &overlay.changes().unwrap(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(r#"+++ "b/txt.\342\200\256hs\342\201\251""#) && text.is_ascii(), "{text}");
}

#[test]
fn a_patch_makes_of_the_directory_what_the_guest_saw() {
    if is_skipped("a_patch_makes_of_the_directory") {
        return;
    }
    let host = Host::new();
    let files: [(&str, &[u8], &[u8]); 9] = [
        ("with space", b"one\ntwo\n", b"one\nthree\n"),
        ("dir with space/two  words", b"one\n", b"one\nmore"),
        ("tab\tand \"space\"", b"one\n", b"two\n"),
        ("carriage", b"a\rb\nc\r\nd\n", b"a\rb\nC\rc\r\nd\re"),
        ("ends in carriage", b"x\ny\r", b"x\nz\r"),
        ("latin", b"caf\xe9\nx\n", b"caf\xe9\ny\xff\n"),
        ("separators", b"a\xe2\x80\xa8b\x0bc\x0cd\n", b"a\xe2\x80\xa8b\x0bc\x0cD\n"),
        ("no newline", b"last", b"last\n"),
        ("new file with space", b"", b"first\r\nsecond"),
    ];
    for (name, before, _) in files.iter().filter(|(_, before, _)| !before.is_empty()) {
        fs::create_dir_all(host.path(name).parent().unwrap()).unwrap();
        fs::write(host.path(name), before).unwrap();
    }
    host.write("one", "decoy\n");
    host.guest(|dir| files.iter().for_each(|(name, _, after)| fs::write(dir.join(name), after).unwrap()));
    let overlay = host.open().unwrap();
    let mut text = Vec::new();
    patch(&overlay, &overlay.changes().unwrap(), &mut text).unwrap();
    let file = host.directory().with_file_name("patch");
    fs::write(&file, &text).unwrap();
    let programs: [&[&str]; 2] =
        [&["git", "apply", "--whitespace=nowarn"], &["patch", "-p1", "--binary", "--batch", "-i"]];
    for words in programs {
        let copy = tempfile::tempdir_in("/var/tmp").unwrap();
        let copied = std::process::Command::new("cp").arg("-R").arg(host.path(".")).arg(copy.path()).status();
        assert!(copied.unwrap().success());
        let mut program = std::process::Command::new(words[0]);
        let program = program.args(&words[1..]).arg(&file).current_dir(copy.path());
        let output = match program.stdin(std::process::Stdio::null()).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("SKIPPED: a_patch_makes_of_the_directory: there is no program {}", words[0]);
                continue;
            }
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", String::from_utf8_lossy(&text));
        for (name, _, after) in files {
            assert_eq!(fs::read(copy.path().join(name)).unwrap(), after, "{words:?} {name}");
        }
        assert_eq!(fs::read(copy.path().join("one")).unwrap(), b"decoy\n");
    }
}
