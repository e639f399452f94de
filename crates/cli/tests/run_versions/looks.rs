//! What one guest changes and another looks at.

/// Something to look at, before and after a change.
pub(crate) struct Look {
    pub(crate) what: &'static str,
    /// The shell command that looks.
    pub(crate) look: String,
    /// The shell command that changes what it shows.
    pub(crate) change: String,
    /// What the look shows after the change, with spaces for line ends.
    pub(crate) expected: String,
}

/// Returns the looks of one round, in order. They leave the share as the next round needs it.
pub(crate) fn looks(round: usize) -> Vec<Look> {
    let look = |what, look: &str, change: &str, expected: &str| {
        let fill = |text: &str| text.replace("{}", &round.to_string());
        Look { what, look: fill(look), change: fill(change), expected: fill(expected) }
    };
    // One of two, of equal length.
    let version = ["odd", "eve"][round % 2];
    let other = ["751", "640"][round % 2];
    let (saved, len) = [("save", "5"), ("another", "8")][round % 2];
    vec![
        look("an absent name", "cat new{} 2>/dev/null || echo absent", "echo now > new{}", "now"),
        // Made by the guest that looks. To open it would ask the daemon.
        look(
            "a present name",
            "[ -e /tmp/made{} ] || { : > /tmp/made{}; : > made{}; }; [ -e made{} ] && echo present",
            "rm made{}",
            "",
        ),
        look(
            "data of equal size and time",
            "cat data",
            &format!("echo {version}{{}} > data; touch -d @1000000000 data"),
            &format!("{version}{{}}"),
        ),
        // The shell keeps the file open, so that its name is not looked up anew.
        look(
            "data of an open file",
            "[ -e /tmp/open ] || { : > /tmp/open; exec 3< held; }; cat /dev/fd/3",
            &format!("echo {version} > held; touch -d @1000000000 held"),
            version,
        ),
        look("a mode", "stat -c %a moded", &format!("chmod {other} moded"), other),
        look("a longer file", "tail -n 1 log", "echo line {} >> log", "line {}"),
        // The shell reads the directory without asking for its times, which would be refreshed with it.
        look("a listing with a new name", "echo dir/*", "touch dir/x", "dir/x"),
        look("a listing without a name", "echo dir/*", "rm dir/x", "dir/*"),
        look("both names of a rename", "ls moved{} new{} 2>/dev/null", "mv new{} moved{}", "moved{}"),
        look("a link count", "stat -c %h moved{}", "ln moved{} link{}", "2"),
        look("a replaced file", "stat -c %s conf", &format!("echo {saved} > conf~; mv conf~ conf"), len),
        look(
            "a file below a renamed directory",
            "cat tree{}/file 2>/dev/null || echo absent",
            "mv tree tree{}",
            "below",
        ),
        look("the old name of a directory", "cat tree/file 2>/dev/null || echo absent", "mv tree{} tree", "below"),
        look("a symbolic link", "readlink sym", "ln -sfn target{} sym", "target{}"),
        look("the time of a directory", "stat -c %Y dir", "rm moved{} link{}; touch -d @1{} dir", "1{}"),
    ]
}
