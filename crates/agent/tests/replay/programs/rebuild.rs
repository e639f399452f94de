//! Programs of Debian that build again when a file changes, unmodified, in a guest, while the host saves the file as
//! several programs do.
//!
//! The text of each edit has to come out of the build, through the share [`CONTROL`] of the guest.

use std::{fs, path::Path, thread, time::Duration, time::Instant};

use anyhow::Context as _;
use transom_vm::{CacheMode, Root, Share};

use super::{IN_MAKE_TEST, TOOLS, edits, fetch};
use crate::{
    Guest, Machine,
    guest::{CONTROL, SHARE},
    watcher::PATIENCE,
};

/// Runs the builder `$2` in the directory `$1`, says when it has built once, and ends it at the end of the test.
const GUEST: &str = r#"
share=$1 control=$2
cd "$share"
dash -c "$3" >"$control/said" 2>&1 &
builder=$!
until grep -qs 'edit 0 done' "$control/built"; do
  kill -0 $builder || { cat "$control/said"; exit 1; }
  sleep 0.05
done
: >"$control/ready"
until [ -e "$control/stop" ]; do sleep 0.05; done
kill $builder
"#;

/// entr drops what changes while its command runs, so the file is then saved once more.
const SAVE_AGAIN_AFTER: Duration = Duration::from_secs(3);

type Save = fn(&Path, &str) -> anyhow::Result<()>;

/// Ways to save a file.
const SAVES: [(&str, Save); 7] = [
    ("sed -i", |file, text| {
        let directory = file.parent().context("a directory")?;
        edits::sh(directory, &format!("sed -i '1c\\{}' input.ts", text.trim_end())).map(drop)
    }),
    ("vim: a backup by rename, then a new file", |file, text| Ok(edits::vim(file, text)?)),
    ("vim: a backup by copy, then the same file", |file, text| Ok(edits::vim_in_place(file, text)?)),
    ("VS Code: truncates, then writes", |file, text| Ok(edits::vs_code(file, text)?)),
    ("a new file renamed over it", |file, text| {
        let new = file.with_extension("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, file)?)
    }),
    ("removed and made anew, as git checkout does", |file, text| {
        fs::remove_file(file)?;
        Ok(fs::write(file, text)?)
    }),
    ("mv of a tree to its place", |file, text| {
        let directory = file.parent().context("a directory")?;
        let (new, old) = (directory.with_extension("new"), directory.with_extension("old"));
        fs::create_dir(&new)?;
        fs::write(new.join("input.ts"), text)?;
        fs::rename(directory, &old)?;
        fs::rename(&new, directory)?;
        Ok(fs::remove_dir_all(old)?)
    }),
];

pub(crate) fn entr(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    // It ends when a file that it watches is gone for good, as its manual says, hence the loop.
    let script = format!(
        "while :; do find source -type f -name '*.ts' | entr -n -d dash -c 'cat source/input.ts >{CONTROL}/new
        mv {CONTROL}/new {CONTROL}/built'; sleep 0.1; done"
    );
    with_builder(machine, daemon, "entr", &script)
}

pub(crate) fn webpack(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let script = format!(
        "NODE_PATH=/usr/share/nodejs webpack --watch --mode=development --devtool=false \
         --entry ./source/input.ts --output-path {CONTROL} --output-filename built"
    );
    with_builder(machine, daemon, "webpack", &script)
}

pub(crate) fn rollup(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    // It ends with its standard input.
    let script = format!("tail -f /dev/null | rollup --input source/input.ts --file {CONTROL}/built --watch");
    with_builder(machine, daemon, "rollup", &script)
}

pub(crate) fn tsc(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let script = format!("tsc --watch --outFile {CONTROL}/built --module system source/input.ts");
    with_builder(machine, daemon, "node-typescript", &script)
}

/// Boots a guest that runs `script`, and saves `source/input.ts` on the host.
fn with_builder(machine: &Machine, daemon: &Path, package: &str, script: &str) -> anyhow::Result<String> {
    let packages = match package {
        "entr" => IN_MAKE_TEST.to_vec(),
        package => TOOLS.into_iter().chain(["grep", package]).collect(),
    };
    let prefix = match fetch(&packages) {
        Ok(prefix) => prefix,
        Err(error) => {
            println!("SKIPPED: {package} cannot be had here: {error:#}");
            return Ok(String::new());
        }
    };
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "")?;
    let (share, control) = (guest.share.clone(), guest.control.clone());
    let source = share.join("source");
    fs::create_dir(&source)?;
    let file = source.join("input.ts");
    fs::write(&file, text_of(0))?;
    guest.spec.root = Root::Host(Share { host: prefix.root(), cache: Some(CacheMode::Always), ..Share::default() });
    guest.spec.env = vec![("LC_ALL".into(), "C".into())];
    guest.spec.command = ["dash", "-c", GUEST, "dash", SHARE, CONTROL, script].map(Into::into).to_vec();
    let (outcome, ()) = guest.run(|| {
        let saved = SAVES.iter().zip(1..).try_for_each(|((name, save), number)| {
            save(&file, &text_of(number))?;
            let mut saved_at = Instant::now();
            let built = || fs::read_to_string(control.join("built")).unwrap_or_default();
            let deadline = Instant::now() + PATIENCE;
            while !built().contains(&format!("edit {number} done")) {
                let said = || fs::read_to_string(control.join("said")).unwrap_or_default();
                anyhow::ensure!(Instant::now() < deadline, "{name}: {package} built {:?}: {}", built(), said());
                thread::sleep(Duration::from_millis(10));
                if saved_at.elapsed() > SAVE_AGAIN_AFTER {
                    save(&file, &text_of(number))?;
                    saved_at = Instant::now();
                }
            }
            Ok(())
        });
        fs::write(control.join("stop"), "")?;
        saved
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    Ok(format!("({} ways) ", SAVES.len()))
}

fn text_of(edit: usize) -> String {
    format!("export const text = \"edit {edit} done\"; console.log(text);\n")
}
