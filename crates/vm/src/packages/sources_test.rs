use super::*;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_paragraph_becomes_an_entry() {
    let entries = parse_deb822(
        "Types: deb deb-src\n# a note\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
         Components: main contrib\nArchitectures: amd64\nSigned-By: /usr/share/keyrings/k.gpg\n\n\
         Types: deb\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\nComponents: main\n",
    );
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].uris, words("http://mirror.example/debian"));
    assert_eq!(entries[0].suites, words("bookworm bookworm-updates"));
    assert_eq!(entries[0].components, words("main contrib"));
    assert_eq!(entries[0].options, [("Signed-By".into(), "/usr/share/keyrings/k.gpg".into())]);
    assert_eq!(entries[1].suites, words("bookworm-security"));
}

#[test]
fn disabled_and_source_only_paragraphs_are_left_out() {
    let text = "Types: deb\nURIs: http://mirror.example/a\nSuites: x\nComponents: main\nEnabled: no\n\n\
                Types: deb-src\nURIs: http://mirror.example/b\nSuites: x\nComponents: main\n\n\
                Types: deb\nURIs: http://mirror.example/c\nSuites: ./\n";
    assert_eq!(parse_deb822(text), []);
}

#[test]
fn a_key_within_a_paragraph_keeps_its_lines() {
    let text =
        "Types: deb\nURIs: http://mirror.example/d\nSuites: x\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n";
    let entries = parse_deb822(text);
    let again = entries[0].with_suites(&["y".into()], "amd64");
    assert!(again.ends_with("Signed-By: \n -----BEGIN\n .\n abc\n"), "{again:?}");
}

#[test]
fn a_line_becomes_an_entry() {
    let entries = parse_one_line(
        "# deb http://mirror.example/old bookworm main\n\
         deb [arch=amd64,i386 signed-by=/k.gpg check-valid-until=no] http://mirror.example/debian \
        bookworm main contrib # note\n\
         deb-src http://mirror.example/debian bookworm main\n\
         deb cdrom:[Debian]/ bookworm\n",
    );
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].suites, words("bookworm"));
    assert_eq!(entries[0].components, words("main contrib"));
    assert_eq!(entries[0].option("signed-by"), Some("/k.gpg"));
    assert_eq!(entries[0].option("Check-Valid-Until"), Some("no"));
    assert_eq!(entries[0].option("arch"), None);
}

#[test]
fn another_suite_keeps_the_mirror_and_its_key() {
    let entry = &parse_one_line("deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main")[0];
    assert_eq!(
        entry.with_suites(&words("trixie trixie-updates"), "amd64"),
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie trixie-updates\nComponents: main\n\
         Architectures: amd64\nTargets: Packages\nSigned-By: /k.gpg\n"
    );
}
