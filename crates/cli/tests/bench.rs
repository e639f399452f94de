//! `transom bench` on the command line: the smallest run, its files, the comparison of two runs, and the page in a
//! browser.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;
use transom_vm::packages::{Cache, Closure, Freshness, Packages, Prefix, Quiet, Request};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_transom")).arg("bench").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the daemon that was built, or prints SKIPPED and returns `None`.
fn daemon(test: &str) -> Option<PathBuf> {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    if !daemon.is_file() {
        eprintln!("SKIPPED: {test}: no daemon {daemon:?}; build transomd");
        return None;
    }
    Some(daemon)
}

/// Returns the results of the smallest run with the daemon that was built, or prints SKIPPED and returns `None`.
fn results(test: &str) -> Option<TempDir> {
    let daemon = daemon(test)?;
    let out = tempfile::tempdir().unwrap();
    let shared = tempfile::tempdir().unwrap();
    let [out_path, shared_path] = [&out, &shared].map(|dir| dir.path().to_str().unwrap());
    let again = format!("again={}", daemon.display());
    let output = bench(&[
        "--daemon",
        "transomd",
        "--daemon",
        &again,
        "--rounds",
        "1",
        "--scale",
        "0.01",
        "--out",
        out_path,
        "--shared-in",
        shared_path,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("too few rounds"), "one round gives no ratio: {}", text(&output.stdout));
    assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 0, "something is left in the shared directory");
    Some(out)
}

#[test]
fn results_are_compared_with_themselves_and_a_slower_one_fails() {
    let Some(out) = results("results_are_compared_with_themselves_and_a_slower_one_fails") else { return };
    // 1. Five identical rounds.
    let mut report: serde_json::Value =
        serde_json::from_slice(&fs::read(out.path().join("quick.json")).unwrap()).unwrap();
    assert_eq!(report["schema"], 2);
    let samples = report["samples"].as_array().unwrap().clone();
    let rounds = (0..5).flat_map(|round| {
        samples.iter().cloned().map(move |mut sample| {
            sample["repetition"] = round.into();
            sample
        })
    });
    report["samples"] = rounds.collect();
    let before = out.path().join("before.json");
    fs::write(&before, report.to_string()).unwrap();
    let before = before.to_str().unwrap();
    let output = bench(&["compare", before, before, "--fail-below", "0.9"]);
    assert!(output.status.success(), "{}", text(&output.stdout));

    // 2. The same rounds at half the speed.
    for sample in report["samples"].as_array_mut().unwrap() {
        if let Some(speed) = sample["measure"]["ops_per_s"].as_f64() {
            sample["measure"]["ops_per_s"] = (speed / 2.0).into();
        }
    }
    let after = out.path().join("after.json");
    fs::write(&after, report.to_string()).unwrap();
    let output = bench(&["compare", before, after.to_str().unwrap(), "--fail-below", "0.9"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("below 0.9: "));
}

#[test]
fn a_daemon_that_fails_is_left_out_and_the_others_are_measured() {
    let Some(_) = daemon("a_daemon_that_fails_is_left_out_and_the_others_are_measured") else { return };
    let (out, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [out_path, shared_path] = [&out, &shared].map(|dir| dir.path().to_str().unwrap());
    let common = ["--rounds", "2", "--scale", "0.01", "--out", out_path, "--shared-in", shared_path];
    // 1. The other daemons are measured in every round.
    let output = bench(&[&["--daemon", "broken=/bin/false", "--daemon", "transomd"][..], &common].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("broken failed in round 1"), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(out.path().join("quick.json")).unwrap()).unwrap();
    let samples = report["samples"].as_array().unwrap();
    for round in [0, 1] {
        assert!(samples.iter().any(|sample| sample["daemon"] == "transomd" && sample["repetition"] == round));
    }
    assert!(samples.iter().all(|sample| sample["daemon"] != "broken"));
    assert_eq!(report["daemons"].as_array().unwrap().len(), 1, "nothing is compared with what was not measured");
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("broken failed in round 1")), "{notes:?}");
    // 2. If only the bare directory was measured, there is no report.
    fs::remove_file(out.path().join("quick.json")).unwrap();
    let output = bench(&[&["--daemon", "broken=/bin/false"][..], &common].concat());
    assert!(text(&output.stderr).contains("nothing was measured"), "{}", text(&output.stderr));
    assert!(!out.path().join("quick.json").exists());
}

#[test]
fn files_that_are_none_of_results_are_told_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.json");
    for (content, word) in [("", "not a result file"), ("{\"schema\": 99}", "format 99"), ("{}", "not a result file")] {
        fs::write(&path, content).unwrap();
        let output = bench(&["compare", path.to_str().unwrap(), path.to_str().unwrap()]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr.contains(word) && stderr.contains("results.json"), "{content:?}: {stderr}");
    }
    assert_eq!(bench(&["compare", "/nonexistent/a", "/nonexistent/b"]).status.code(), Some(2));
}

#[test]
fn wrong_command_lines_are_told_before_anything_is_measured() {
    for (arguments, word) in [
        (&["--daemon", "/nonexistent/daemon"][..], "virtiofsd-c"),
        (&["--daemon", "transomd", "--daemon", "transomd"], "two daemons"),
        (&["--socket", "/nonexistent/socket"], "no socket"),
        (&["--socket", "/dev/null", "--guest", "user,mount"], "one front end at a time"),
        (&["--scale", "0", "--daemon", "transomd"], "--scale"),
        (&["-o", "fast", "--guest", "mount", "--daemon", "transomd"], "unknown mount option \"fast\""),
        (&["-o", "ro", "--daemon", "transomd"], "--guest mount"),
        (&["-o", "fsname=a/b", "--guest", "mount", "--daemon", "transomd"], "not a valid name for a daemon"),
        (&["--daemon", "host=transomd"], "not a valid name for a daemon"),
    ] {
        let output = bench(arguments);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(word), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// Widths of a phone and of a desktop, in pixels.
const WIDTHS: [u32; 2] = [360, 1280];

#[test]
fn the_page_fits_a_phone_and_a_desktop_in_a_browser() {
    const NAME: &str = "the_page_fits_a_phone_and_a_desktop_in_a_browser";
    let Some(out) = results(NAME) else { return };
    let browser = match Browser::find() {
        Ok(browser) => browser,
        Err(reason) => {
            eprintln!("SKIPPED: {NAME}: no headless Chromium: {reason}");
            return;
        }
    };
    // The frame has the width of the device, and every section is unfolded; the page within must not be wider.
    let page = fs::read_to_string(out.path().join("quick.html")).unwrap().replace("<details>", "<details open>");
    fs::write(out.path().join("page.html"), page).unwrap();
    for width in WIDTHS {
        let frame = out.path().join("frame.html");
        fs::write(&frame, frame_of(width)).unwrap();
        let dom = browser.dom(&frame);
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or_default();
        assert_eq!(title, format!("{width} of {width}"), "the page is wider than the screen, or was not laid out");
        let picture = out.path().join(format!("{width}.png"));
        browser.picture(&frame, width, &picture);
        assert!(fs::metadata(&picture).unwrap().len() > 10_000, "the picture at width {width} is almost empty");
    }
}

fn frame_of(width: u32) -> String {
    format!(
        "<!DOCTYPE html><body style='margin:0'><iframe id=f src=page.html \
         style='border:0;width:{width}px;height:2000px'></iframe>\
         <script>f.onload = () => {{ const e = f.contentDocument.documentElement; \
         document.title = e.scrollWidth + ' of ' + e.clientWidth; }}</script>"
    )
}

/// Headless Chromium from the distribution's package.
struct Browser {
    prefix: Prefix,
    home: TempDir,
}

impl Browser {
    fn find() -> Result<Self, String> {
        let message = |error: &dyn std::fmt::Display| error.to_string();
        let cache = Cache::locate().map_err(|error| message(&error))?;
        let suite = Packages::own_suite().map_err(|error| message(&error))?;
        let request = Request {
            suite: &suite,
            packages: &["chromium-headless-shell", "fonts-dejavu-core"],
            closure: Closure::WithDependencies,
            freshness: Freshness::Cached,
        };
        let prefix = Packages::new(&cache, &Quiet).fetch(&request).map_err(|error| message(&error))?;
        let home = tempfile::tempdir().map_err(|error| message(&error))?;
        let fonts = format!(
            "<?xml version='1.0'?><fontconfig><dir>{}</dir><cachedir>{}</cachedir></fontconfig>",
            prefix.root().join("usr/share/fonts").display(),
            home.path().display()
        );
        fs::write(home.path().join("fonts.conf"), fonts).map_err(|error| message(&error))?;
        let browser = Self { prefix, home };
        let output = browser.command().arg("--version").output().map_err(|error| message(&error))?;
        if output.status.success() { Ok(browser) } else { Err(text(&output.stderr)) }
    }

    /// Chromium finds its files relative to its executable, so it must be started directly rather than through a
    /// fetched loader; the packages are of this machine's release, so its own loader works.
    fn command(&self) -> Command {
        let libraries: Vec<PathBuf> = self.prefix.libraries();
        let mut command = Command::new(self.prefix.root().join("usr/lib/chromium/chromium-headless-shell"));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap());
        command.env("HOME", self.home.path()).env("FONTCONFIG_FILE", self.home.path().join("fonts.conf"));
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--hide-scrollbars",
        ]);
        command
    }

    fn dom(&self, page: &Path) -> String {
        let output = self.command().arg("--virtual-time-budget=5000").arg("--dump-dom").arg(page).output().unwrap();
        text(&output.stdout)
    }

    fn picture(&self, page: &Path, width: u32, to: &Path) {
        let mut command = self.command();
        command.arg(format!("--window-size={width},2000")).arg(format!("--screenshot={}", to.display())).arg(page);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}
